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


def envelope(cmd="make a1", **members):
    command = {"cmd": cmd, "exit_code": 2, "cwd": "/w", "preview": {"lines": ["no rule"], "truncated": False}, **members}
    return "\x1eCODEX_META " + json.dumps({"v": 1, "type": "user_cmd_context", "commands": [command]}) + "\x1f"


def message_line(words, front="", rpc_id="m"):
    return json.dumps({"id": rpc_id, "method": "turn/start", "params": {"input": [{"type": "text", "text": front + words}]}})


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

    def ask(self, rpc_id=0, kind="command"):
        key = f"K{TOKEN}-{rpc_id}"
        self.server.append({"t": self.tick(), "ev": "ask", "key": key, "rpc_id": rpc_id, "kind": kind, "again": False})
        if kind == "ruled":
            self.server.append({"t": self.tick(), "ev": "send", "conn": 0, "line": ask_line(rpc_id)})
            self.record("server", ask_line(rpc_id))
        else:
            self.to_client(ask_line(rpc_id))
        row = {"request_id": f"g-{rpc_id}", "item_id": key, "status": "pending", "resolved_payload_json": None,
               "resolution_source": None, "resolved_by": None, "error_code": None, "confirmed_at": None,
               "dispatched_at": None, "resolved_at": None, "expires_at": (self.now + 2) * 1e3}
        row["request_payload_json"] = json.dumps(json.loads(ask_line(rpc_id))["params"])
        self.history.rows.append(row)
        return row

    def resolve(self, payload, source="client", by="ann", rpc_id=0):
        row = next(row for row in self.history.rows if row["request_id"] == f"g-{rpc_id}")
        row.update(resolved_at=self.now * 1e3, status="resolved", resolved_payload_json=json.dumps(payload), resolution_source=source, resolved_by=by)
        self.keep(payload, source, by, True, rpc_id)

    def keep(self, payload, source, by, won, rpc_id=0):
        self.history.answers.append({"at": self.now * 1e3, "request_id": f"g-{rpc_id}", "source": source, "by": by, "won": int(won),
                                     "payload_json": json.dumps(payload)})

    def got(self, payload, rpc_id=0):
        self.server.append({"t": self.tick(), "ev": "answer", "conn": 0, "rpc_id": rpc_id, "key": f"K{TOKEN}-{rpc_id}",
                            "payload": payload})

    def send_own(self, line):
        self.record("shim", line, to="server")
        self.server.append({"t": self.tick(), "ev": "recv", "conn": 0, "line": line})

    def policy_answers(self, payload, by, rpc_id=0):
        """A rule at once, an expiry after its time."""
        self.now += 2 if by == "expiry" else 0
        self.resolve(payload, "policy", by, rpc_id)
        self.send_own(answer_line(payload, rpc_id))
        self.got(payload, rpc_id)
        self.barrier()

    def sends_with_envelope(self, words="go", times=1):
        """The client's message, and as often the one that the server gets in its place."""
        line = message_line("go")
        self.client.append({"t": self.tick(), "ev": "send", "line": line})
        self.record("client", line)
        self.history.calls.append({"t": 1, "ev": "pushed", "body": {"cmd": "make a1", "exit_code": 2, "cwd": "/w", "output": "no rule"}})
        return [{"ev": "recv", "conn": 0, "line": message_line(words, envelope())}] * times

    def reach_server(self, events):
        for event in events:
            self.record("shim", event["line"], to="server", replaces=True)
            self.server.append({"t": self.tick(), **event})
        self.barrier()

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


def answered_by(by, payload={"decision": "decline"}, kind="command"):  # noqa: B006
    """An expiry or a rule answers."""
    scene = Scene()
    if by == "expiry":
        scene.history.faults.append({"t": scene.now, "ev": "expiry"})
    scene.ask(kind=kind)
    scene.policy_answers(payload, by)
    return scene


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

    def test_second_row_needs_a_second_question(self):
        scene = race()
        scene.history.rows.append({**scene.history.rows[0], "request_id": "g-0.2"})
        self.assert_wrong(scene, 1)

    def test_answer_is_replaced_only_after_a_killed_hub(self):
        scene = race()
        scene.history.rows[0]["error_code"] = "answer_replaced"
        self.assert_wrong(scene, 1)

    # Claim 2.

    def test_only_answers_to_secret_questions_may_be_left_out_of_the_ledger(self):
        scene = waiting()
        scene.history.rows[0]["resolved_payload_json"] = scene.history.answers[0]["payload_json"] = '{"omitted":"secret"}'
        self.assert_wrong(scene, 2)

    def test_winner_of_a_hub_is_the_first_too(self):
        scene = race()
        scene.history.workload = "hub"
        for record in scene.history.records:
            record.conn = 0
        self.assert_right(scene)
        scene.history.answers.insert(0, {**scene.history.answers.pop(1), "at": 0})
        self.assert_wrong(scene, 2)

    def test_what_a_policy_has_stored_is_sent(self):
        for by, kind in (("expiry", "command"), ("rule:forbidden", "ruled")):
            scene = answered_by(by, kind=kind)
            scene.server[:] = [each for each in scene.server if each["ev"] != "answer"]
            self.assert_wrong(scene, 2)
            scene.history.faults = [each for each in scene.history.faults if each["ev"] != "barrier"]
            self.assertNotIn(2, {each[0] for each in check(scene.history).violations})  # it may be on its way

    def test_an_expiry_does_not_win_over_an_answer_in_time(self):
        scene = answered_by("expiry")
        early = {**scene.history.answers[0], "at": 100_600, "source": "client", "by": "ann", "won": 0}
        scene.history.answers.insert(0, early)
        self.assert_wrong(scene, 2)

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

    def test_lost_answer_of_client_is_neither_kept_nor_on_record(self):
        scene = race()
        scene.history.answers.pop(2)
        scene.history.records = [each for each in scene.history.records if "cann-2" not in (each.line or "")]
        self.assert_wrong(scene, 3)
        self.assert_wrong(scene, 8)

    def test_lost_answer_is_kept_once_the_winner_is_stored(self):
        """A hub that is killed right after that may forget what waited for it."""
        scene = race()
        scene.history.answers.pop(2)
        scene.fault("kill_relay")
        scene.barrier()
        self.assert_wrong(scene, 3)
        scene.history.rows[0]["resolved_at"] = scene.history.faults[-2]["t"] * 1e3
        self.assertNotIn(3, {each[0] for each in check(scene.history).violations})

    def test_caller_gets_a_reply(self):
        scene = race()
        scene.history.calls[0].update(status=None, reply="RemoteDisconnected: ")
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

    def test_request_that_will_expire_is_listed(self):
        for keys, is_right in (([KEY], True), ([], False)):
            scene = Scene()
            scene.history.faults.append({"t": scene.now, "ev": "expiry"})
            scene.ask()
            scene.list(keys)
            scene.policy_answers({"decision": "decline"}, "expiry")
            self.assert_right(scene) if is_right else self.assert_wrong(scene, 4)

    # Claim 5.

    def test_rules_and_expiries_decline(self):
        self.assertEqual(self.assert_right(answered_by("expiry"))["by_expiry"], 1)
        self.assertEqual(self.assert_right(answered_by("rule:forbidden", kind="ruled"))["by_rule"], 1)
        self.assert_wrong(answered_by("expiry", {"decision": "accept"}), 5)
        self.assert_wrong(answered_by("rule:forbidden", {"decision": "accept"}, "ruled"), 5)
        self.assert_wrong(answered_by("expiry", {"answers": {}}, "question"), 5)

    def test_stored_answer_of_a_policy_is_a_decline(self):
        scene = answered_by("rule:forbidden", kind="ruled")
        scene.server[:] = [each for each in scene.server if each["ev"] != "answer"]
        scene.end_server()
        scene.history.rows[0]["resolved_payload_json"] = '{"decision":"accept"}'
        self.assert_wrong(scene, 5)

    def test_nothing_expires_before_its_time(self):
        scene = answered_by("expiry")
        next(each for each in scene.server if each["ev"] == "answer")["t"] -= 1
        self.assert_wrong(scene, 5)

    def test_answer_to_a_request_that_nobody_made(self):
        scene = race()
        scene.send_own(answer_line(WON, 9))
        scene.server.append({"t": scene.tick(), "ev": "answer", "conn": 0, "rpc_id": 9, "key": None, "payload": WON})
        self.assert_wrong(scene, 5)

    def test_client_gets_a_request_that_nobody_made(self):
        scene = race()
        scene.to_client(ask_line(7))
        self.assert_wrong(scene, 5)

    def test_own_words_to_the_model_are_somebodys(self):
        for text, is_right in (("do", True), ("do it", False)):
            for count in (1, 2):
                scene = race()
                scene.history.calls.append({"t": 1, "ev": "posted", "body": {"text": "do"}})
                for number in range(count):
                    scene.send_own(message_line(text, rpc_id=f"codex-shim:1:{number}"))
                scene.barrier()
                self.assert_right(scene) if is_right and count == 1 else self.assert_wrong(scene, 5)

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

    def test_policy_has_its_name(self):
        for by, kind in (("somebody", "command"), ("rule:forbidden", "command"), ("rule:other", "ruled"), ("expiry2", "ruled")):
            scene = answered_by("expiry", kind=kind)
            scene.history.rows[0]["resolved_by"] = by
            self.assert_wrong(scene, 6)
        scene = answered_by("expiry")
        scene.history.answers[0]["by"] = "somebody"
        self.assert_wrong(scene, 6)

    def test_uid_is_no_pid(self):
        scene = waiting()
        scene.history.rows[0]["resolved_by"] = "uid 77, pid 1"
        self.assert_wrong(scene, 6)

    def test_row_has_the_request(self):
        scene = race()
        scene.history.rows[0]["request_payload_json"] = '{"itemId":"%s","command":"true"}' % KEY
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
        for words, front, is_right in (("go", envelope(), True), ("gone", envelope(), False), ("go", "\x1eCODEX_META {}\x1f", False),
                                       ("go", envelope().replace("user_cmd", "other"), False), ("go", "x" + envelope(), False)):
            scene = race()
            event, = scene.sends_with_envelope()
            scene.reach_server([{**event, "line": message_line(words, front)}])
            if is_right:
                self.assertEqual(self.assert_right(scene)["lines_with_envelope"], 1)
            else:
                self.assert_wrong(scene, 7)

    def test_message_with_envelope_comes_once(self):
        for times, is_right in ((0, False), (1, True), (2, False), (3, False)):
            scene = race()
            scene.reach_server(scene.sends_with_envelope(times=times))
            self.assert_right(scene) if is_right else self.assert_wrong(scene, 7)

    def test_message_with_envelope_comes_in_its_order(self):
        scene = race()
        events = scene.sends_with_envelope()
        scene.to_server('{"method":"note","nonce":"n1"}')
        scene.reach_server(events)
        self.assert_wrong(scene, 7)

    def test_message_with_envelope_is_somebodys(self):
        for line in (message_line("rm -rf", envelope(), "m2"), message_line("go", envelope(), "m2")):
            scene = race()
            scene.reach_server(scene.sends_with_envelope() + [{"ev": "recv", "conn": 0, "line": line}])
            self.assert_wrong(scene, 7)

    def test_commands_in_an_envelope_were_pushed(self):
        for front, is_right in ((envelope(), True), (envelope("rm"), False), (envelope(exit_code=0), False),
                                (envelope(preview={"lines": ["all is well"]}), False)):
            scene = race()
            event, = scene.sends_with_envelope()
            scene.reach_server([{**event, "line": message_line("go", front)}])
            self.assert_right(scene) if is_right else self.assert_wrong(scene, 5)

    def test_shown_message_has_lost_its_envelope_alone(self):
        for shown, is_right in (("go", True), ("gone", False)):
            scene = race()
            sent, line = (json.dumps({"method": "item/started", "params": {"text": text}}) for text in (envelope() + "go", shown))
            scene.server.append({"t": scene.tick(), "ev": "send", "conn": 0, "line": sent})
            scene.record("server", sent)
            scene.record("shim", line, to="client", replaces=True)
            scene.client.append({"t": scene.tick(), "ev": "recv", "line": line})
            scene.barrier()
            self.assert_right(scene) if is_right else self.assert_wrong(scene, 7)

    def test_envelope_reaches_the_client(self):
        scene = race()
        scene.to_client(json.dumps({"method": "item/started", "params": {"text": envelope() + "hello"}}))
        self.assert_wrong(scene, 8)

    def test_client_sees_what_a_rule_answers(self):
        scene = answered_by("rule:forbidden", kind="ruled")
        scene.client.append({"t": scene.server[-4]["t"] + 0.01, "ev": "recv", "line": ask_line()})
        self.assert_wrong(scene, 7)
        scene.history.rows[0]["late"] = 1
        self.assert_wrong(scene, 9)  # nothing has waited for the ledger

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

    def test_there_is_a_journal(self):
        scene = race()
        scene.history.records.clear()
        self.assert_wrong(scene, 8)

    def test_only_answers_to_secret_questions_may_be_left_out_of_the_journal(self):
        scene = race()
        record = next(each for each in scene.history.records if each.line == '{"method":"note","nonce":"cann-3"}')
        record.omitted_bytes, record.line = len(record.line), None
        self.assert_wrong(scene, 8)

    def test_own_line_on_record_was_sent(self):
        scene = race()
        scene.record("shim", answer_line(WON, 1), to="server")
        scene.now += 1
        scene.barrier()
        self.assert_wrong(scene, 8)

    def test_withheld_line_of_the_server_is_on_record(self):
        scene = answered_by("rule:forbidden", kind="ruled")
        scene.history.records = [each for each in scene.history.records if each.line != ask_line()]
        self.assert_wrong(scene, 8)

    def test_records_have_times(self):
        for at in (0, 10**12):
            scene = race()
            for record in scene.history.records:
                record.at = at
            self.assert_wrong(scene, 8)

    def test_secret_answer_is_in_no_file(self):
        scene = Scene()
        scene.ask(kind="secret")
        scene.client_answers({"answers": {"q": {"answers": ["cann-9"]}}})
        for data, is_right in ((b"\0cann-91 xcann-9", True), (b"\0\x07cann-9\x01", False)):
            scene.history.files = {"history.db": data}
            scene.history.records = [each for each in scene.history.records if "cann-9" not in each.line]
            said = [each for each in check(scene.history).violations if "history.db" in each[1]]
            self.assertEqual(not said, is_right)

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

    def test_clock_that_is_set_proves_nothing(self):
        scene = crash()
        scene.history.rows[0]["resolved_at"] -= 2000
        scene.client.append({"t": scene.now, "wall": scene.now - 5, "ev": "end"})
        self.assert_right(scene)

    def test_undocumented_state(self):
        scene = crash()
        scene.history.rows[0].update(status="done")
        self.assert_wrong(scene, 9)

    def test_answered_row_has_its_time(self):
        for at in (None, 10**9):
            scene = race()
            scene.history.rows[0]["resolved_at"] = at
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
