"""Commands about what the agent may do, what runs around it, and what it is told: permissions, hooks, checks, folders, skills."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kimi_tui.agent_parts import MODE_TITLES
from kimi_tui.app_paths import reason_of
from kimi_tui.display_names import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_tui.config.settings import EditCheck
    from kimi_tui.hooks.definitions import Hook
    from kimi_tui.hooks.runner import Hooks
    from kimi_tui.soul.kimisoul import KimiSoul
    from kimi_tui.soul.skills import SessionSkill, SessionSkills, SkillState
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.main.commands import MainParts

_FOLDER_WORDS = {
    "not allowed": "The hooks of this folder do not run until you allow them.",
    "changed": "The hooks of this folder, or scripts that they run, have changed since you allowed them: they do not run, and calls of tools "
    "that they guard are refused.",
    "allowed": "You allowed the hooks of this folder as they are now.",
}


async def permissions(main: MainParts, argument: str) -> None:
    """List the permissions for the session and for the project, to revoke them; with a number, or `all`, revoke without the list."""
    soul = await main.conversation.opened()
    listed = await _permissions(soul)
    if not argument:
        from kimi_tui.tui.dialogs.list_screen import ListScreen

        await main.bench.ask(
            ListScreen(
                "Permissions",
                partial(_permissions, soul),
                first=listed,
                empty=f"Mode: {MODE_TITLES[soul.mode]}. There are no extra permissions.",
            )
        )
        return
    gone = listed if argument == "all" else ()
    if argument.isdecimal() and 0 < int(argument[:9]) <= len(listed):
        gone = (listed[int(argument) - 1],)
    if not gone:
        text = "You have not allowed anything for this session or this folder."
        if listed:
            text = f'"{argument[:20]}" is not the number of a permission. /permissions lists them.'
        main.bench.tell(text, level="warning")
        return
    for item in gone:
        assert item.act is not None
        main.bench.tell(await item.act())


async def _permissions(soul: KimiSoul) -> Sequence[ListedItem]:
    """Return the permissions as entries of a list, each of which revokes it."""
    from kimi_tui.config.permissions import shown_rule
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    async def revoke_session(words: str) -> str:
        soul.permissions.revoke(words)
        return f"Revoked: {_granted(words)}."

    async def revoke_project(rule: str) -> str:
        try:
            await soul.permissions.revoke_for_project(rule)
        except (OSError, ValueError) as error:
            return f"The permission could not be revoked: {reason_of(error)}."
        return f"Revoked: {shown_rule(rule)}."

    mode = f"Mode: {MODE_TITLES[soul.mode]}."
    of_session = [
        ListedItem(
            Entry(_granted(words), group="This session"),
            f"{mode} This permission ends with the session.",
            "revoke",
            partial(revoke_session, words),
        )
        for words in soul.permissions.of_session
    ]
    of_project = [
        ListedItem(
            Entry(shown_rule(rule), group="This folder"),
            f"{mode} {_about(rule)}",
            "revoke",
            partial(revoke_project, rule),
        )
        for rule in await soul.permissions.of_project()
    ]
    return (*of_session, *of_project)


def _about(rule: str) -> str:
    if rule.startswith("server:"):
        return (
            "You allowed this folder's MCP server, so it starts with each session here. "
            "Revoking the permission stops the server."
        )
    words = "This permission is saved for this folder in your own configuration."
    return words if ":" in rule else f"{words} Only commands outside the sandbox need it."


def _granted(words: str) -> str:
    words = words.removeprefix("Yes, and ").removeprefix("allow ")
    for ending in (" for this session", " in this session", " this session"):
        words = words.replace(ending, "")
    return words


async def hooks(main: MainParts, argument: str) -> None:
    """List the hooks, to turn them on and off, and to allow those of the folder."""
    soul = await main.conversation.opened()
    found = soul.hooks
    if found is None:
        main.bench.tell("This session runs without hooks.")
        return
    await soul.reload_hooks()
    if argument == "allow":
        await _allow_folder(main, found)
        return
    if argument:
        main.bench.tell(
            f'"{argument[:20]}" is not an argument of /hooks.',
            advice="/hooks lists the hooks; /hooks allow shows those of this folder and asks whether they may run.",
            level="warning",
        )
        return
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    wants = await main.bench.ask(
        ListScreen(
            "Hooks",
            partial(_hook_items, found),
            first=await _hook_items(found),
            empty="There are no hooks. docs/hooks.md says where they are configured.",
        )
    )
    if wants == _ALLOW:
        await _allow_folder(main, found)


_ALLOW = "allow"


async def _hook_items(found: Hooks) -> Sequence[ListedItem]:
    from kimi_tui.app_paths import short
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    async def turn(hook: Hook) -> str:
        on = found.is_off(hook)
        try:
            await found.turn(hook, on=on)
        except OSError as error:
            return f"The setting could not be saved: {reason_of(error)}."
        return f"The hook is {'on' if on else 'off'}."

    state = await found.folder_state()
    items: list[ListedItem] = []
    for hook in (*found.found.own, *found.found.folder):
        is_own, is_off = hook.origin == "user", found.is_off(hook)
        where = "in the sandbox" if hook.sandbox else "outside the sandbox, with your permissions"
        about = [
            hook.command,
            f"{short(hook.path)}. It runs {where}, for at most {hook.timeout_s:g} seconds.",
        ]
        if hook.condition:
            about.append(f"Only if: {hook.condition}")
        if hook.trouble:
            about.append(f"It cannot run: {hook.trouble}.")
        elif why := found.why_not(hook):
            about.append(f"It does not run in this session: {why}.")
        if not is_own:
            about.append(_FOLDER_WORDS[state])
        runs = is_own or state == "allowed"
        is_heard = not hook.trouble and not found.why_not(hook)
        items.append(
            ListedItem(
                Entry(
                    f"{hook.event}{f' {hook.matcher}' if hook.matcher else ''}",
                    hook.command,
                    holds=runs and not is_off and is_heard,
                    group=short(hook.path) if is_own else f"{short(hook.path)} ({state})",
                ),
                "\n".join(about),
                ("turn on" if is_off else "turn off") if runs else "allow the hooks of this folder",
                partial(turn, hook) if runs else None,
                result="" if runs else _ALLOW,
            )
        )
    if found.found.elsewhere:
        named = ", ".join(found.found.elsewhere)
        items.append(
            ListedItem(
                Entry("Not in kimi-tui", named, group="Other events"),
                f"These hooks do not run, because kimi-tui has no such events: {named}.",
            )
        )
    return items


async def _allow_folder(main: MainParts, found: Hooks) -> None:
    """Show the hooks of the folder, and allow them after a yes to the whole text."""
    from kimi_tui.tui.main.commands.custom import CustomCommandScreen

    hooks = found.found.folder
    if not hooks:
        main.bench.tell("This folder has no hooks.")
        return
    if await found.folder_state() == "allowed":
        main.bench.tell(
            "The hooks of this folder are allowed.", advice="/permissions revokes that."
        )
        return
    # The yes is for what is there now: a script that changes while the question is shown needs another one.
    digest = await found.folder_digest()
    texts = [
        f"{one.event}{f' ({one.matcher})' if one.matcher else ''}, at most {one.timeout_s:g} s:\n{one.command}"
        for one in hooks
    ]
    question = CustomCommandScreen(
        "hooks",
        str(hooks[0].path.parent),
        "\n\n".join(texts),
        intro="This folder has hooks: programs that run at events of a session, in the sandbox. "
        "Yes allows exactly these hooks and the scripts that they name; if one changes, you are asked again:",
        yes="y let them run",
    )
    if not await main.bench.ask(question):
        main.bench.tell("The hooks of this folder do not run.")
        return
    try:
        await found.allow_folder(digest)
    except (OSError, ValueError) as error:
        main.bench.tell(f"The permission could not be saved: {reason_of(error)}.", level="warning")
        return
    main.bench.tell(
        "The hooks of this folder run from now on.", advice="/permissions revokes that."
    )


async def checks(main: MainParts, argument: str) -> None:
    """List the programs that run after edits, to turn them off and on in this session."""
    soul = await main.conversation.opened()
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    await main.bench.ask(
        ListScreen(
            "Checks after edits",
            partial(_check_items, soul),
            first=await _check_items(soul),
            empty='There are no checks. In your config.toml, [checks] after_edit = [["ruff", "check", "{file}"]] makes one.',
        )
    )


async def _check_items(soul: KimiSoul) -> Sequence[ListedItem]:
    import shlex

    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    made = soul.checks

    async def turn(check: EditCheck) -> str:
        made.off ^= {check}
        return f"The check is {'off' if check in made.off else 'on'} in this session."

    return [
        ListedItem(
            Entry(
                shlex.join(check.words),
                ", ".join(check.files) or "all files",
                holds=check not in made.off,
            ),
            "It runs in the sandbox after each edit of a matching file. What it prints when it fails goes to the agent; "
            "if it changes the file, the change is shown.",
            "turn on" if check in made.off else "turn off",
            partial(turn, check),
        )
        for check in made.checks
    ]


async def add_dir(main: MainParts, argument: str) -> None:
    """Add a folder that the agent may use as the work folder; without one, list those that were added, to remove them."""
    from kimi_tui.tools.added_folders import BadFolder

    soul = await main.conversation.opened()
    if not argument.strip():
        from kimi_tui.tui.dialogs.list_screen import ListScreen

        await main.bench.ask(
            ListScreen(
                "Added folders",
                partial(_folder_items, soul),
                first=await _folder_items(soul),
                empty="There are no added folders. /add-dir DIR adds one until you quit.",
            )
        )
        return
    try:
        path = await asyncio.to_thread(soul.added.add, argument)
    except BadFolder as bad:
        main.bench.tell(str(bad), level="warning")
        return
    main.bench.tell(
        f"The agent may use {soul.added.shown(path)} until you quit: it reads there without asking, "
        "and edits and runs commands as the mode allows.",
        advice="A rewind does not restore the files of this folder.",
    )


async def _folder_items(soul: KimiSoul) -> Sequence[ListedItem]:
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    async def remove(path: str) -> str:
        soul.added.remove(path)
        return f"Removed: {soul.added.shown(path)}."

    return [
        ListedItem(
            Entry(soul.added.shown(path)),
            "The agent reads here without asking, and edits and runs commands as the mode allows. "
            "A rewind does not restore these files.",
            "remove",
            partial(remove, path),
        )
        for path in await asyncio.to_thread(lambda: soul.added.paths)
    ]


_SKILL_WORDS: dict[SkillState, str] = {
    "told": "The agent knows its name and description, and loads the text when it needs it.",
    "not allowed": "It comes with this folder. The agent cannot use it until you allow it.",
    "not described": "It has no description, so the agent does not know when to use it. You can use it as a command.",
    "for you": "Only you can use it, as a command: its file says that the agent may not.",
}


async def skills(main: MainParts, argument: str) -> None:
    """List the skills, and allow those of the folder."""
    soul = await main.conversation.opened()
    if soul.skills is None:
        main.bench.tell("This session runs without skills.")
        return
    found = await asyncio.to_thread(soul.skills.found)
    if argument == "allow":
        await _allow_skills(main, soul, soul.skills, found)
        return
    if argument:
        main.bench.tell(
            f'"{argument[:20]}" is not an argument of /skills.',
            advice="/skills lists the skills; /skills allow shows those of this folder and asks whether the agent may use them.",
            level="warning",
        )
        return
    from kimi_tui.tui.dialogs.list_screen import ListScreen

    async def items() -> Sequence[ListedItem]:
        return _skill_items(found)

    wants = await main.bench.ask(
        ListScreen(
            "Skills",
            items,
            first=_skill_items(found),
            empty="There are no skills. docs/skills.md says where they are looked for.",
        )
    )
    if wants == _ALLOW:
        await _allow_skills(main, soul, soul.skills, found)


def _skill_items(found: Sequence[SessionSkill]) -> Sequence[ListedItem]:
    from kimi_tui.app_paths import short
    from kimi_tui.tui.dialogs.list_screen import ListedItem
    from kimi_tui.tui.pick_list import Entry

    return [
        ListedItem(
            Entry(
                one.name,
                one.description or one.help,
                holds=state == "told",
                group="Yours" if one.origin == "user" else "This folder",
            ),
            f"{short(one.path)}\n{_SKILL_WORDS[state]}\n{one.description}".rstrip(),
            "review and allow" if state == "not allowed" else "",
            None,
            result=_ALLOW if state == "not allowed" else "",
        )
        for one, state in sorted(found, key=lambda skill: skill.command.origin != "user")
    ]


async def _allow_skills(
    main: MainParts, soul: KimiSoul, skills: SessionSkills, found: Sequence[SessionSkill]
) -> None:
    """Show the folder's skills that are not allowed yet, and allow them after a yes to the whole text."""
    from kimi_tui.tui.main.commands.custom import CustomCommandScreen

    new = [one.command for one in found if one.state == "not allowed"]
    if not new:
        main.bench.tell("This folder has no skills that need your approval.")
        return
    texts = [f"{one.name} ({one.path}): {one.description}\n\n{one.text}" for one in new]
    question = CustomCommandScreen(
        "skills",
        main.bench.transcript.work_dir,
        "\n\n\n".join(texts),
        intro="This folder has skills: instructions that the agent may follow. Yes allows exactly this text; if it changes, you are asked again:",
        yes="y let the agent use them",
    )
    if not await main.bench.ask(question):
        main.bench.tell("The agent cannot use the skills of this folder.")
        return
    await asyncio.to_thread(skills.allow, new)
    await soul.reload_skills()
    count = counted(len(new), "skill")
    main.bench.tell(f"The agent may use {count} of this folder.")
