"""Hand-made histories, one for each claim, each with wrong variants that the check must find."""

import copy
import json
import unittest

from checker.claims import check
from checker.history import History, Record, members, parse_record

TOKEN, KEY = "aaaaaa", "Kaaaaaa-0"


def ask_line(rpc_id=0):
    return json.dumps({"method": "item/commandExecution/requestApproval", "id": rpc_id,
                       "params": {"itemId": f"K{TOKEN}-{rpc_id}"}})


def answer_line(payload, rpc_id=0):
    return json.dumps({"id": rpc_id, "result": payload})


class Scene:
    """A relay with one client; each step goes into the logs of all parties, as it would in a run without a fault."""

    def __init__(self):
        self.now = 100.0
        self.server = [{"t": 99, "wall": 99, "ev": "start", "pid": 1, "token": TOKEN}, {"t": 99, "ev": "open", "conn": 0}]
        self.client = [{"t": 99, "ev": "start", "name": "ann", "kind": "stdio"}]
        self.history = History("relay", [self.server], [self.client])
        self.to_server('{"id":"i","method":"initialize"}')
        self.server.append({"t": self.now, "ev": "name", "conn": 0, "name": "ann"})

    def tick(self):
        self.now += 0.1
        return self.now

    def record(self, sender, line, **members):
        to = {"client": "server", "server": "client"}.get(sender)
        self.history.records.append(Record("g", at=int(self.tick() * 1e6), sender=sender, line=line, **{"to": to, **members}))

    def to_server(self, line):
        self.client.append({"t": self.tick(), "ev": "send", "line": line})
        self.record("client", line)
        self.server.append({"t": self.tick(), "ev": "recv", "conn": 0, "line": line})

    def to_client(self, line):
        self.server.append({"t": self.tick(), "ev": "send", "conn": 0, "line": line})
        self.record("server", line)
        self.client.append({"t": self.tick(), "ev": "recv", "line": line})

    def ask(self, rpc_id=0):
        key = f"K{TOKEN}-{rpc_id}"
        self.server.append({"t": self.tick(), "ev": "ask", "key": key, "rpc_id": rpc_id, "kind": "command", "again": False})
        self.to_client(ask_line(rpc_id))
        row = {"request_id": f"g-{rpc_id}", "item_id": key, "status": "pending", "resolved_payload_json": None,
               "resolution_source": None, "resolved_by": None, "error_code": None, "confirmed_at": None,
               "dispatched_at": None, "resolved_at": None}
        self.history.rows.append(row)
        return row

    def resolve(self, payload, source="client", by="ann", rpc_id=0):
        row = next(row for row in self.history.rows if row["request_id"] == f"g-{rpc_id}")
        row.update(resolved_at=self.now * 1e3, status="resolved", resolved_payload_json=json.dumps(payload), resolution_source=source, resolved_by=by)
        self.keep(payload, source, by, True, rpc_id)

    def keep(self, payload, source, by, won, rpc_id=0):
        self.history.answers.append({"at": self.now, "request_id": f"g-{rpc_id}", "source": source, "by": by, "won": int(won),
                                     "payload_json": json.dumps(payload)})

    def got(self, payload, rpc_id=0):
        self.server.append({"t": self.tick(), "ev": "answer", "conn": 0, "rpc_id": rpc_id, "key": f"K{TOKEN}-{rpc_id}",
                            "payload": payload})

    def client_answers(self, payload, rpc_id=0):
        self.to_server(answer_line(payload, rpc_id))
        self.got(payload, rpc_id)
        self.resolve(payload, rpc_id=rpc_id)

    def client_answers_late(self, payload, rpc_id=0):
        self.client.append({"t": self.tick(), "ev": "send", "line": answer_line(payload, rpc_id)})
        self.record("client", answer_line(payload, rpc_id))
        self.keep(payload, "client", "ann", False, rpc_id)

    def call(self, payload, idempotent, stored, rpc_id=0, status=200):
        reply = {"ok": True, "idempotent": idempotent, "request": {"resolved_payload": stored}}
        begun_at = self.tick()
        self.history.calls.append({"t": self.tick(), "ev": "call", "via": "api", "who": "77", "key": f"K{TOKEN}-{rpc_id}",
                                   "request_id": f"g-{rpc_id}", "begun_at": begun_at, "expected": payload, "body": payload,
                                   "status": status, "reply": reply})

    def caller_answers(self, payload, rpc_id=0):
        self.call(payload, False, payload, rpc_id)
        line = answer_line(payload, rpc_id)
        self.record("shim", line, to="server")
        self.server.append({"t": self.now, "ev": "recv", "conn": 0, "line": line})
        self.got(payload, rpc_id)
        self.server[-1]["t"] = self.history.calls[-1]["t"]
        self.resolve(payload, "api", "uid 0, pid 77", rpc_id)

    def list(self, keys):
        self.barrier()
        self.history.calls.append({"t": self.tick(), "ev": "listed", "since": self.now - 0.05, "keys": keys})

    def end_server(self):
        self.server.append({"t": self.tick(), "ev": "end", "reason": "eof"})
        self.history.faults.append({"t": self.tick(), "ev": "closed"})

    def fault(self, kind, **members):
        self.history.faults.append({"t": self.tick(), "ev": "fault", "kind": kind, "begun_at": self.now, **members})

    def barrier(self):
        """All that was sent before has passed."""
        self.history.faults.append({"ev": "barrier", "since": self.tick(), "t": self.tick()})
        self.history.faults.append({"ev": "over", "t": self.tick()})


WON, LOST = {"decision": "accept", "nonce": "cann-1"}, {"decision": "decline", "nonce": "a77-1"}


def race():
    """The client answers first, a caller and the client again later."""
    scene = Scene()
    scene.ask()
    scene.client_answers(WON)
    scene.to_client('{"method":"serverRequest/resolved","params":{"requestId":0},"nonce":"s1"}')
    scene.call(LOST, True, WON)
    scene.keep(LOST, "api", "uid 0, pid 77", False)
    scene.client_answers_late({"decision": "cancel", "nonce": "cann-2"})
    scene.ask(1)
    scene.caller_answers({"decision": "accept", "nonce": "a77-2"}, 1)
    scene.to_client('{"method":"note","nonce":"s2"}')
    scene.to_server('{"method":"note","nonce":"cann-3"}')
    scene.barrier()
    return scene


def crash():
    """A request is open when the server is killed."""
    scene = Scene()
    row = scene.ask()
    scene.fault("kill_server")
    scene.end_server()
    row.update(status="orphaned", error_code="server_exited", resolved_at=scene.now * 1e3)
    return scene


def waiting():
    """A request waits, is listed, and is answered by a caller."""
    scene = Scene()
    scene.ask()
    scene.list([KEY])
    scene.caller_answers({"decision": "accept", "nonce": "a77-1"})
    scene.barrier()
    return scene


def locked():
    """A request is asked and answered while another program holds the lock of the ledger, and passes once that is over."""
    scene = Scene()
    begun_at = scene.now + 0.01
    scene.ask()
    scene.client_answers(WON)
    scene.fault("lock_ledger", until=begun_at + 0.12)
    scene.history.faults[-1]["begun_at"] = begun_at
    scene.barrier()
    return scene


class Claims(unittest.TestCase):
    def assert_right(self, scene):
        report = check(copy.deepcopy(scene.history))
        self.assertEqual(report.violations, [])
        return report.chances

    def assert_wrong(self, scene, claim):
        claims = {each[0] for each in check(scene.history).violations}
        self.assertIn(claim, claims)

    def test_right_histories_pass(self):
        chances = self.assert_right(race())
        self.assertEqual((chances["contested"], chances["losers_told"], chances["losers_kept"]), (1, 1, 2))
        self.assertEqual(self.assert_right(crash())["orphaned"], 1)
        self.assertEqual(self.assert_right(waiting())["open_when_listed"], 1)

    # Claim 1.

    def test_second_answer_at_server(self):
        scene = race()
        scene.got({"decision": "cancel", "nonce": "cann-2"})
        self.assert_wrong(scene, 1)

    def test_repeated_request_may_have_two_answers(self):
        scene = race()
        scene.server.append({"t": 100.5, "ev": "ask", "key": KEY, "rpc_id": 0, "conn": 0, "again": True})
        scene.got({"decision": "cancel", "nonce": "cann-2"})
        self.assert_wrong(scene, 1)
        scene.history.rows.append({**scene.history.rows[0], "request_id": "g-0.2"})
        self.assertNotIn(1, {each[0] for each in check(scene.history).violations})

    # Claim 2.

    def test_ledger_has_another_answer(self):
        scene = race()
        scene.history.rows[0]["resolved_payload_json"] = json.dumps(LOST)
        self.assert_wrong(scene, 2)

    def test_winner_is_not_the_first_stored(self):
        scene = race()
        scene.history.answers.insert(0, {**scene.history.answers.pop(1), "at": 0})
        self.assert_wrong(scene, 2)

    def test_two_winners(self):
        scene = race()
        scene.history.answers[1]["won"] = 1
        self.assert_wrong(scene, 2)

    def test_later_answer_wins_over_a_complete_one(self):
        scene = race()
        scene.history.calls[0].update(t=100.35, begun_at=100.32)
        self.assert_wrong(scene, 2)

    def test_resolved_row_without_answer_at_server(self):
        scene = race()
        scene.server[:] = [each for each in scene.server if each["ev"] != "answer"]
        self.assert_wrong(scene, 2)

    def test_locked_ledger_stores_nothing(self):
        chances = self.assert_right(locked())
        self.assertEqual((chances["asked_while_locked"], chances["answered_while_locked"]), (1, 0))
        for claim, until in ((4, 0.35), (2, 1)):
            scene = locked()
            scene.history.faults[0]["until"] += until
            self.assert_wrong(scene, claim)
            scene.history.rows[0]["late"] = 1
            self.assert_right(scene)

    def test_caller_is_told_before_its_answer_can_be_stored(self):
        scene = waiting()
        call = scene.history.calls[-1]
        scene.fault("lock_ledger", until=call["t"] + 0.01)
        scene.history.faults[-1]["begun_at"] = call["begun_at"] - 0.01
        self.assert_wrong(scene, 2)

    # Without a barrier nothing is due.

    def test_what_no_barrier_follows_may_be_lost(self):
        scene = race()
        scene.history.answers.pop(2)
        self.assert_wrong(scene, 3)
        scene.history.faults.clear()
        self.assertEqual(self.assert_right(scene)["losers_unkept_in_crash"], 1)

    # Claim 3.

    def test_lost_answer_of_caller_is_not_kept(self):
        scene = race()
        scene.history.answers.pop(1)
        self.assert_wrong(scene, 3)

    def test_lost_answer_of_client_is_not_kept(self):
        scene = race()
        scene.history.answers.pop(2)
        self.assert_wrong(scene, 3)

    def test_loser_is_told_that_it_won(self):
        scene = race()
        scene.history.calls[0]["reply"]["idempotent"] = False
        self.assert_wrong(scene, 3)

    def test_loser_is_told_another_answer(self):
        scene = race()
        scene.history.calls[0]["reply"]["request"]["resolved_payload"] = LOST
        self.assert_wrong(scene, 3)

    def test_refused_answer_reaches_the_server(self):
        scene = waiting()
        scene.history.calls[-1].update(status=503)
        self.assert_wrong(scene, 3)

    # Claim 4.

    def test_open_request_is_not_listed(self):
        scene = waiting()
        scene.history.calls[0]["keys"] = []
        self.assert_wrong(scene, 4)

    def test_listed_request_need_not_be_answered(self):
        scene = Scene()
        scene.ask()
        scene.list([KEY])
        scene.barrier()
        self.assertEqual(self.assert_right(scene)["open_when_listed"], 1)

    def test_listed_request_cannot_be_answered(self):
        scene = waiting()
        scene.server[:] = [each for each in scene.server if each["ev"] != "answer"]
        self.assert_wrong(scene, 4)

    def test_request_without_row(self):
        scene = race()
        scene.history.rows.pop(0)
        self.assert_wrong(scene, 4)

    # Claim 5.

    def test_answer_that_nobody_gave(self):
        scene = waiting()
        scene.history.calls.pop()
        self.assert_wrong(scene, 5)

    def test_withdrawal_that_the_server_did_not_make(self):
        scene = crash()
        scene.history.rows[0].update(status="resolved", resolution_source="server", error_code="withdrawn_by_server")
        self.assert_wrong(scene, 5)

    # Claim 6.

    def test_row_names_another_client(self):
        scene = race()
        scene.history.rows[0]["resolved_by"] = "ben"
        self.assert_wrong(scene, 6)

    def test_row_names_another_process(self):
        scene = waiting()
        scene.history.rows[0]["resolved_by"] = "uid 0, pid 78"
        self.assert_wrong(scene, 6)

    def test_policy_that_nobody_has_set(self):
        scene = waiting()
        scene.history.rows[0].update(resolution_source="policy", resolved_by="expiry")
        self.assert_wrong(scene, 6)

    # Claim 7.

    def test_lines_arrive_out_of_order(self):
        for events in (lambda scene: scene.client, lambda scene: scene.server):
            scene = race()
            received = [each for each in events(scene) if each["ev"] == "recv"]
            received[0]["line"], received[-1]["line"] = received[-1]["line"], received[0]["line"]
            self.assert_wrong(scene, 7)

    def test_line_is_lost_on_the_way(self):
        for events in (lambda scene: scene.client, lambda scene: scene.server):
            scene = race()
            last = [each for each in events(scene) if each["ev"] == "recv"][-1]
            events(scene).remove(last)
            self.assert_wrong(scene, 7)

    def test_envelope_is_the_only_change(self):
        plain = '{"id":"t","method":"turn/start","params":{"input":[{"text":"hello"}]}}'
        changed = plain.replace("hello", "\\u001eCODEX_META {}\\u001fhello")
        for text, is_right in ((changed, True), (changed.replace("hello", "hallo"), False)):
            scene = race()
            scene.client.append({"t": scene.tick(), "ev": "send", "line": plain})
            scene.record("client", plain)
            scene.record("shim", text, to="server", replaces=True)
            scene.server.append({"t": scene.tick(), "ev": "recv", "conn": 0, "line": text})
            scene.barrier()
            if is_right:
                self.assertEqual(self.assert_right(scene)["withheld_envelope"], 1)
            else:
                self.assert_wrong(scene, 7)

    def test_envelope_reaches_the_client(self):
        scene = race()
        scene.to_client('{"method":"item/started","params":{"text":"\\u001eCODEX_META {}\\u001fhello"}}')
        self.assert_wrong(scene, 8)

    def test_line_arrives_twice(self):
        scene = race()
        scene.client.append(dict(scene.client[-3]))
        self.assert_wrong(scene, 7)

    def test_records_are_out_of_order(self):
        scene = race()
        lines = [each for each in scene.history.records if each.sender == "server"]
        lines[0].line, lines[1].line = lines[1].line, lines[0].line
        self.assert_wrong(scene, 7)

    # Claim 8.

    def test_received_line_is_not_on_record(self):
        for index in range(len(race().history.records)):
            scene = race()
            if scene.history.records[index].line == answer_line({"decision": "cancel", "nonce": "cann-2"}):
                continue  # it reached nobody
            scene.history.records.pop(index)
            self.assert_wrong(scene, 8)

    def test_gap_covers_as_many_lines_as_it_says(self):
        scene = race()
        del scene.history.records[1:3]
        scene.history.records.append(Record("g", gap_lines=1))
        self.assert_wrong(scene, 8)
        scene.history.records[-1].gap_lines = 2
        self.assert_wrong(scene, 8)  # at that time the disk was not full
        scene.history.faults.insert(0, {"t": 101, "ev": "fault", "kind": "full_disk", "begun_at": 100})
        self.assert_right(scene)

    def test_recorded_line_is_altered(self):
        scene = race()
        scene.history.records[1].line += " "
        self.assert_wrong(scene, 8)

    def test_time_of_records_goes_back(self):
        scene = race()
        scene.history.records[-1].at = 1
        self.assert_wrong(scene, 8)

    # Claim 9.

    def test_request_stays_pending_after_crash(self):
        scene = crash()
        scene.history.rows[0].update(status="pending", error_code=None)
        self.assert_wrong(scene, 9)

    def test_orphaned_while_the_server_runs(self):
        scene = crash()
        scene.history.rows[0]["resolved_at"] -= 2000
        self.assert_wrong(scene, 9)

    def test_orphaned_without_reason(self):
        scene = crash()
        scene.history.rows[0]["error_code"] = None
        self.assert_wrong(scene, 9)

    def test_closed_request_is_still_listed(self):
        scene = race()
        scene.list([KEY])
        self.assert_wrong(scene, 9)


class Reading(unittest.TestCase):
    def test_lines_of_records_are_verbatim(self):
        text = '{"at":1,"from":"client","line":{"b" : 1e999, "a":"\\u001e"}}'
        record = parse_record("g", text, None)
        self.assertEqual((record.line, record.to), ('{"b" : 1e999, "a":"\\u001e"}', "server"))
        self.assertEqual(members('{"a":1,"b":[2]}'), {"a": (1, "1"), "b": ([2], "[2]")})

    def test_bytes_and_references_are_read(self):
        self.assertEqual(parse_record("g", '{"from":"server","base64":"/w=="}', None).line, "\udcff")
        self.assertEqual(parse_record("g", '{"from":"server","same":7}', {7: "x"}.get).line, "x")


if __name__ == "__main__":
    unittest.main()
