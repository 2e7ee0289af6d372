"""What the network did, as our own errors: not reached, too slow, or closed too early. Nothing about answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from kimi_tui.llm.errors import APIConnectionError, APITimeoutError
from kimi_tui.llm.failures import redact
from kimi_tui.llm.transport import is_loopback


@dataclass(frozen=True, slots=True)
class NetworkFailures:
    """Words the failures of connections to one server."""

    host: str
    secret: str = field(repr=False)
    connect_timeout_s: float
    stream_timeout_s: float

    def timeout(self, error: BaseException) -> APITimeoutError:
        """Connecting took too long, or nothing came for too long."""
        import httpx2

        cause = error.__cause__ or error
        if isinstance(cause, httpx2.ConnectTimeout | httpx2.PoolTimeout):
            return APITimeoutError(
                f"{self.host} did not accept a connection within {self.connect_timeout_s:g} s.",
                advice="Check the network and the base URL.",
            )
        return APITimeoutError(
            f"{self.host} was silent for {self.stream_timeout_s:g} s.",
            advice="If it stays silent, choose another model with /model.",
        )

    def unreachable(self, error: BaseException) -> APIConnectionError:
        """Nobody listens, the name is not known, the certificate is wrong, or the line was cut before an answer."""
        import httpx2

        cause = error.__cause__ or error
        if not isinstance(cause, httpx2.ConnectError):
            return APIConnectionError(
                f"{self.host} closed the connection before it answered.",
                advice="This usually passes.",
            )
        why = redact(str(cause), self.secret).strip()[:200]
        return APIConnectionError(
            f"{self.host} cannot be reached" + (f": {why}" if why else "."),
            advice="Is the server running?"
            if is_loopback(self.host)
            else "Check the network and the base URL.",
        )
