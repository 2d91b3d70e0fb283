"""A server that asks who we are takes it from MLflow's own environment variables; we keep nothing.

The process that sends a run has the environment of the one that trains, so what is set there counts
there. A wrong password loses no data: the run trains on, and `stabexp sync` sends it later.
"""

from __future__ import annotations

from collections.abc import Mapping

USERNAME, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
TOKEN = "MLFLOW_TRACKING_TOKEN"


def denied(uri: str, environment: Mapping[str, str], *, known: bool) -> str:
    """Return what to tell somebody whom a server does not let in; no secret is in it.

    Args:
        uri: The server.
        environment: The environment variables the credentials are taken from.
        known: Whether the server knows the user, but does not allow this.
    """
    given = [name for name in (USERNAME, PASSWORD, TOKEN) if environment.get(name)]
    if known:
        who = f"the user in {USERNAME}" if USERNAME in given else f"the owner of {TOKEN}"
        return f"{uri}: does not let {who} write there; ask for the permission, or change it"
    if not given:
        return f"{uri}: asks who you are; set {USERNAME} and {PASSWORD}, or {TOKEN}"
    if given == [USERNAME]:
        return f"{uri}: asks who you are; {USERNAME} is set, set {PASSWORD} too"
    them = "it" if len(given) == 1 else "them"
    return f"{uri}: does not accept {' and '.join(given)}; correct {them}"
