"""``mongodb+srv``: a DNS server on loopback names the members and the options; capture goes through it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dns.message
import dns.resolver
import dns.rrset
import pytest
from lakehouse import settings_for
from pymongo.database import Database
from pymongo.uri_parser import parse_uri

from strandline.errors import RetriableError
from strandline.jobs.capture.run_capture import run_capture
from strandline.jobs.lake_context import open_capture_without_spark
from strandline.model.table_schemas import bronze_table

HOST = "mongo.0.0.1"
"""A name in the domain of the address 127.0.0.1. The driver accepts only targets of the same domain."""


@contextmanager
def dns_server(records: dict[tuple[str, str], str]) -> Iterator[list[str]]:
    """A DNS server that answers these records. Yields the questions that it got. The driver's resolver asks it."""
    asked: list[str] = []

    class Question(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            wire, connection = self.request
            message = dns.message.from_wire(wire)
            name, kind = message.question[0].name, dns.rdatatype.to_text(message.question[0].rdtype)
            asked.append(f"{kind} {name.to_text(omit_final_dot=True)}")
            answer = dns.message.make_response(message)
            if (found := records.get((kind, name.to_text(omit_final_dot=True)))) is not None:
                answer.answer.append(dns.rrset.from_text(name, 60, "IN", kind, found))
            connection.sendto(answer.to_wire(), self.client_address)

    with socketserver.ThreadingUDPServer(("127.0.0.1", 0), Question) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server.server_address[1]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(dns.resolver, "default_resolver", resolver)
            yield asked
        server.shutdown()


def test_capture_through_srv(mongo_uri: str, database: Database[dict[str, Any]], tmp_path: Path) -> None:
    parsed = parse_uri(mongo_uri)
    (_, port), name = parsed["nodelist"][0], parsed["options"]["replicaSet"]
    records = {
        ("SRV", f"_mongodb._tcp.{HOST}"): f"0 0 {port} 127.0.0.1.",
        ("TXT", HOST): f'"replicaSet={name}"',
    }
    database.create_collection("a")
    uri = f"mongodb+srv://{HOST}/?tls=false"
    with dns_server(records) as asked:
        # A snapshot would be read by other processes, which ask this machine's DNS servers.
        ctx = open_capture_without_spark(settings_for(uri, database.name, tmp_path, snapshot_mode="no_data"))
        assert ctx is not None
        run_capture(ctx, once=True)
        database.a.insert_one({"_id": 2})
        assert run_capture(ctx, once=True).events == 1
    assert set(asked) == {f"SRV _mongodb._tcp.{HOST}", f"TXT {HOST}"}


def test_a_name_without_records_is_one_line(tmp_path: Path) -> None:
    with dns_server({}):
        ctx = open_capture_without_spark(settings_for(f"mongodb+srv://{HOST}/?tls=false", "shop", tmp_path))
        assert ctx is not None
        with pytest.raises(RetriableError, match=r"DNS records .* were not found \((NoAnswer|NXDOMAIN)\)") as refused:
            run_capture(ctx, once=True)
    assert "\n" not in str(refused.value)
    assert not ctx.tables.exists(bronze_table("test"))
