"""Reasons why the driver finds no server: what it knows, and what the configured addresses answer by themselves."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

import pymongo
from pymongo import MongoClient, uri_parser
from pymongo import errors as mongo

from strandline.errors import ConfigurationError, RetriableError, StrandlineError
from strandline.source.errors import NoAnswer, standalone_error
from strandline.source.read_preference import PRIMARY, SECONDARY, Address, fitting_members
from strandline.source.replies import optional_answer, value_at
from strandline.source.uri import for_one_server, for_the_driver, replica_set_of

_ANSWER_MS: Final = 2_000
_MAJORITY_SECONDS: Final = 15.0
"""More than the 10 s between two no-ops of an idle primary."""
_ERRNO: Final = re.compile(r"\[Errno (-?\d+)\]")
"""Number of the system's error in the driver's text. The driver drops the error itself."""
_RESOLVING: Final = frozenset(value for name, value in vars(socket).items() if name.startswith("EAI_"))
_STEPS: Final = {
    "the name cannot be resolved": "check the host in STRANDLINE_SOURCE__URI, and DNS",
    "connection refused": "check the port in STRANDLINE_SOURCE__URI, and that mongod listens there (net.bindIp)",
    "no answer in time": "check the network, firewalls, and that mongod is up",
    "the connection was closed": "check the port; does the server want tls=true?",
    "the answer is not MongoDB's": "check the port in STRANDLINE_SOURCE__URI",
}
"""Next step, by the reason why an address does not answer."""
_STATES: Final = {
    PRIMARY: "primary",
    SECONDARY: "secondary",
    "RSArbiter": "arbiter",
    "RSOther": "neither primary nor secondary",
    "RSGhost": "not initiated",
}


@dataclass(frozen=True)
class Member:
    """A server as the driver sees it.

    Args:
        state: Its state, or the reason why it cannot be reached.
        is_reached: True: it answers the driver.
        tags: Its tags.
    """

    state: str
    is_reached: bool = True
    tags: Mapping[str, Any] = field(default_factory=dict)


def contact_error(client: MongoClient[Any], uri: str) -> StrandlineError:
    """Return the error for *client*, which found no primary and no mongos by *uri*.

    I/O: asks the configured addresses that the driver has dropped. It drops a server of another replica set, of none,
    and one that has another name in its replica set.
    """
    servers = client.topology_description.server_descriptions()
    members = {_named(address): _member(server) for address, server in servers.items()}
    parsed = optional_answer(lambda: uri_parser.parse_uri(for_the_driver(uri), warn=True), "the addresses in the URI")
    seeds: list[Address] = value_at(parsed, list, "nodelist") or []
    dropped = [
        seed for seed in seeds if seed not in servers or isinstance(servers[seed].error, mongo.ConfigurationError)
    ]  # with a direct connection, a server of another replica set is kept, with this error
    for seed in dropped:
        hello = optional_answer(partial(_hello_of, _named(seed), uri), f"the server at {_named(seed)}")
        error = _error_of_server(_named(seed), hello, replica_set_of(uri), members)
        if error is not None:
            return error
    return _no_primary(members)


def _error_of_server(
    address: str, hello: Mapping[str, Any] | None, wanted_set: str | None, members: Mapping[str, Member]
) -> StrandlineError | None:
    """Return the error for a server that answers at *address*, and that the driver cannot use. None: there is none."""
    if hello is None:
        return None
    name, own_name = value_at(hello, str, "setName"), (value_at(hello, str, "me") or "").lower()
    if hello.get("msg") == "isdbgrid":
        name = "a sharded cluster (mongos)"
    elif name is None:
        return without_set_error(hello)
    else:
        name = f"the replica set {name}"
    if wanted_set is not None and name != f"the replica set {wanted_set}":
        return ConfigurationError(
            f"MongoDB at {address} belongs to {name}, and replicaSet={wanted_set} in the MongoDB URI names another",
            next_step="correct or remove replicaSet in STRANDLINE_SOURCE__URI",
        )
    if own_name in members and not members[own_name].is_reached:
        return ConfigurationError(
            f"MongoDB answers at {address}, but {name} calls this member {own_name}, which cannot be reached from here "
            f"({members[own_name].state})",
            next_step="make that name reachable (DNS, hosts file, network), "
            "or add directConnection=true to STRANDLINE_SOURCE__URI, which uses this one member",
        )
    return None


def wait_reason(client: MongoClient[Any]) -> str:
    """Return the reason why a server has not answered a read for so long. I/O: sends one ``hello``."""
    servers = client.topology_description.server_descriptions()
    away = {
        name: member
        for name, member in ((_named(at), _member(it)) for at, it in servers.items())
        if not member.is_reached
    }
    reasons = [f"not reached: {_listed(away)}"] if away else []
    with pymongo.timeout(_ANSWER_MS / 1000):
        hello = optional_answer(lambda: client.admin.command("hello"), "a hello of the source")
    times = [value_at(hello, datetime, "lastWrite", name) for name in ("lastWriteDate", "majorityWriteDate")]
    if hello is None:
        reasons.append("no server answers a hello either")
    elif times[0] and times[1] and (seconds := (times[0] - times[1]).total_seconds()) > _MAJORITY_SECONDS:
        reasons.append(f"the majority of the replica set has confirmed no write for {seconds:.0f} s")
    return "; ".join(reasons) or "the server answers other commands, and is busy with this one (db.currentOp())"


def without_set_error(hello: Mapping[str, Any]) -> StrandlineError:
    """Return the error for a server that has no replica set, or none yet."""
    return _not_initiated() if hello.get("isreplicaset") else standalone_error()


def _not_initiated() -> RetriableError:
    return RetriableError(
        "MongoDB was started with --replSet, and its replica set is not initiated", next_step="run rs.initiate() once"
    )


def _no_primary(members: Mapping[str, Member]) -> RetriableError:
    if any(member.state == _STATES["RSGhost"] for member in members.values()):
        return _not_initiated()
    if any(member.is_reached for member in members.values()):
        return NoAnswer(
            f"the replica set has no primary that can be reached: {_listed(members)}",
            next_step="wait for an election, or start the members that are down",
        )
    steps = dict.fromkeys(_STEPS[member.state] for member in members.values() if member.state in _STEPS)
    return NoAnswer(
        f"MongoDB does not answer at {_listed(members) or 'the configured address'}",
        next_step="; ".join(steps) or "check STRANDLINE_SOURCE__URI, the network and that mongod is up",
    )


def unfit_error(client: MongoClient[Any]) -> StrandlineError:
    """Return the error for *client*, which has a primary and no member that its read preference allows. No I/O."""
    servers = client.topology_description.server_descriptions()
    members, preference = (
        {_named(address): _member(server) for address, server in servers.items()},
        client.read_preference,
    )
    tags = [dict(tag_set) for tag_set in preference.tag_sets if tag_set]
    condition = f"readPreference={preference.mongos_mode}" + (f" and readPreferenceTags {_shown(tags)}" if tags else "")
    text = f"no member fits {condition}: {_listed(members)}"
    step = "correct readPreference and readPreferenceTags in STRANDLINE_SOURCE__URI"
    is_settled = all(member.state in ("primary", "secondary", "arbiter") for member in members.values())
    is_wrong = is_settled and not fitting_members(client.topology_description, preference)
    return ConfigurationError(text, next_step=step) if is_wrong else NoAnswer(text, next_step=step)


def _hello_of(address: str, uri: str) -> Mapping[str, Any]:
    """Return the reply of one address that is asked alone. I/O: connects to it."""
    alone: MongoClient[dict[str, Any]] = MongoClient(for_one_server(uri, address, _ANSWER_MS))
    with closing(alone):
        return alone.admin.command("hello")


def _member(server: Any) -> Member:
    if server.error is not None:
        return Member(_reason(server.error), is_reached=False)
    return Member(_STATES.get(server.server_type_name, server.server_type_name), tags=server.tags)


def _reason(error: Exception) -> str:
    number = int(match[1]) if (match := _ERRNO.search(str(error))) else None
    if isinstance(error, mongo.NetworkTimeout):
        return "no answer in time"
    if isinstance(error, mongo.ProtocolError):
        return "the answer is not MongoDB's"
    if number in _RESOLVING:
        return "the name cannot be resolved"
    if number in (errno.ECONNRESET, errno.EPIPE) or (number is None and isinstance(error, mongo.AutoReconnect)):
        return "the connection was closed"
    if number is None:
        return type(error).__name__
    return "connection refused" if number == errno.ECONNREFUSED else os.strerror(number)


def _listed(members: Mapping[str, Member]) -> str:
    return ", ".join(
        f"{name} ({member.state}{f', tags {_shown([member.tags])}' if member.tags else ''})"
        for name, member in members.items()
    )


def _shown(tag_sets: Collection[Mapping[str, Any]]) -> str:
    return " or ".join(",".join(f"{name}:{value}" for name, value in tags.items()) for tags in tag_sets)


def _named(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if port else host
