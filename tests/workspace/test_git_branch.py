"""The branch of a folder: what `.git` says, and nothing if that is odd."""

from __future__ import annotations

from pathlib import Path

from kimi_tui.workspace.git_branch import branch_of


def test_the_branch_is_read_from_head_alone(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/feature/x\n")
    (tmp_path / "deep").mkdir()
    assert branch_of(tmp_path / "deep") == "feature/x"
    (git / "HEAD").write_text("a" * 40 + "\n")
    assert branch_of(tmp_path) == "aaaaaaa"
    (git / "HEAD").write_text("nonsense \x1b[2J")
    assert branch_of(tmp_path) == ""


def test_worktrees_and_odd_places_have_a_branch_or_none(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "HEAD").write_text("ref: refs/heads/wt\n")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {real}\n")
    assert branch_of(tree) == "wt"
    # As tools leave it that make several working trees of one repository.
    (tmp_path / "linked/.git").mkdir(parents=True)
    (tmp_path / "linked/.git/HEAD").symlink_to(real / "HEAD")
    assert branch_of(tmp_path / "linked") == "wt"
    (tree / ".git").write_text("gitdir: /dev/zero\n")
    assert branch_of(tree) == ""
    assert branch_of(Path("/")) == ""
    assert branch_of(Path("/" + "x" * 5_000)) == ""
