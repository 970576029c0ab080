"""Nobody locks everybody out: a change that would leave nobody who can manage a project, or the server, is refused.

Who can manage is an admin who can also get in. Of two admins of the server, the second has a role alone::

    ada   admin in *    a token for *, as admin          can get in
    bob   admin in *    no token, no OpenID account      cannot

    revoke ada in *, make her a reader there, or revoke her token      refused: bob cannot get in
    make a token for bob, then any of these                            done

A provider that takes a role away is obeyed all the same: it knows best who has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Connection, or_, select

from maskreg.errors import NotAllowedError
from maskreg.service.accounts.models import GrantRow, PrincipalRow, TokenRow
from maskreg.service.accounts.roles import EVERY_PROJECT, Role


@contextmanager
def keeping_admins(connection: Connection, project: str, change: str) -> Iterator[None]:
    """Refuse what happens in the block when it leaves nobody who can manage a project, or the server.

    The caller's transaction is to end with the error, so that nothing of the change stays.

    Args:
        connection: within a transaction that writes.
        project: where somebody loses something; ``*`` for the whole server.
        change: what it is, such as ``revoking the role of ada``.

    Raises:
        NotAllowedError: it does.
    """
    scopes = dict.fromkeys((project, EVERY_PROJECT))
    before = [scope for scope in scopes if _is_managed(connection, scope)]
    yield
    for scope in before:
        if not _is_managed(connection, scope):
            where = "this server" if scope == EVERY_PROJECT else f"project {scope}"
            quoted = "'*'" if scope == EVERY_PROJECT else scope
            raise NotAllowedError(
                f"{change} would leave {where} without an admin who can get in",
                hint=f"make another first: maskreg token create --project {quoted} --role admin --name NAME",
            )


def _is_managed(connection: Connection, project: str) -> bool:
    scopes = {project, EVERY_PROJECT}
    token = (
        select(TokenRow.id)
        .where(
            TokenRow.principal == PrincipalRow.id,
            TokenRow.project.in_(scopes),
            TokenRow.role >= int(Role.ADMIN),
            TokenRow.revoked_at.is_(None),
            or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > datetime.now(UTC)),
        )
        .exists()
    )
    able = (
        select(PrincipalRow.id)
        .join(GrantRow, GrantRow.principal == PrincipalRow.id)
        .where(
            PrincipalRow.removed_at.is_(None),
            GrantRow.project.in_(scopes),
            GrantRow.role >= int(Role.ADMIN),
            or_(PrincipalRow.identity.is_not(None), token),
        )
    )
    return connection.execute(able.limit(1)).first() is not None
