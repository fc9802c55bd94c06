"""The check: nine claims about a history. Pure: it reads a `History` and returns a `Report`.

1 a request is answered at most once to the server        2 the first stored answer is the one that the server got
3 every loser gets the answer that holds                  4 nothing pending is lost
5 every answer has a giver                                6 provenance names who answered
7 each direction has the order of reading                 8 the journal has every line, unaltered
9 after a crash the documented states apply

No verdict depends on how fast anything is. What must have happened by a certain time is told by barriers: at a `barrier` every client has
had an answer to a call that it sent after `since`, so all lines from before have passed, and the ledger has answered after that. What no
barrier followed before the next fault may have been in progress, and nothing is demanded of it.
"""

import json

from checker.callers import key_of
from checker.facts import DECLINE, EXPIRY, EXPIRY_S, SECRET, STATES, Facts, Report, agrees, is_named, member, names, parsed, \
    payload_of, wall_of
from checker.lines import check_directions, check_journal, check_secrets


def check(history):
    facts, report = Facts(history), Report()
    for flaw in history.flaws:
        report.violate(8, "a record of the journal cannot be read", flaw)
    for ask in facts.asks.values():
        report.chances["requests"] += 1
        report.chances["answers_given"] += len(facts.given[ask.key])
        report.chances["contested"] += len(facts.given[ask.key]) > 1
        report.chances["races"] += is_race(facts.given[ask.key])
        check_answers_at_server(facts, ask, report)
        check_repetition(facts, ask, report)
        if facts.is_excused(ask):
            report.chances["excused_requests"] += 1
        elif ask.kind != "tool":
            check_rows_exist(facts, ask, report)
            check_winner(facts, ask, report)
            check_real_time(facts, ask, report)
            check_losers(facts, ask, report)
            check_storing(facts, ask, report)
            check_showing(facts, ask, report)
            for row in facts.rows[ask.key]:
                check_content(ask, row, report)
                check_state(facts, ask, row, report)
                check_names(facts, ask, row, report)
    for row in history.rows:
        if key_of(row) not in facts.asks:
            report.violate(5, "the ledger has a request that no server made", row)
    for key in facts.seen_at:
        if key not in facts.asks:
            report.violate(5, f"a client got the request {key}, which no server made")
    for answer in facts.stray_answers:
        report.violate(5, "a server got an answer to a request that it never made", answer)
    for listing in (each for each in history.calls if each["ev"] == "listed"):
        check_listing(facts, listing, report)
    check_secrets(facts, report)
    check_directions(facts, report)
    check_journal(facts, report)
    return report


def is_race(given):
    """Whether an answer was given before the giver could know of an earlier one."""
    ordered = sorted(given, key=lambda each: each.begun_at)
    return any(b.begun_at <= max(a.ended_at, a.begun_at + 0.005) for a, b in zip(ordered, ordered[1:]))


# Claims 1 and 5: what the server got.


def check_answers_at_server(facts, ask, report):
    rows = facts.rows[ask.key]
    report.chances["answered_at_server"] += bool(ask.got)
    if len(ask.got) > 1:
        is_replaced = any(row["error_code"] == "answer_replaced" for row in rows)
        if len(ask.got) > 1 + len(ask.again) or not (len(rows) > 1 or is_replaced or ask.kind == "tool"):
            report.violate(1, f"{ask.key} was answered {len(ask.got)} times at the server", ask.got, rows, ask.again)
        report.chances["second_answers_documented"] += 1
    for got in ask.got:
        if any(given.payload == got["payload"] and given.begun_at <= got["t"] for given in facts.given[ask.key]):
            report.chances["answers_traced"] += 1
        elif facts.is_policy(ask.key):
            report.chances["policy_answers"] += 1
            check_policy_answer(facts, ask, got, report)
        elif ask.kind == "tool" and facts.history.workload == "serve" and "no client is attached" in json.dumps(got["payload"]):
            report.chances["tool_refusals"] += 1
        else:
            report.violate(5, f"the server got an answer to {ask.key} that nobody gave", got, rows)


def check_policy_answer(facts, ask, got, report):
    """Rules and expiries decline, and nothing expires before its time."""
    rows = facts.rows[ask.key]
    if not facts.policies_of(ask) or got["payload"] != DECLINE:
        report.violate(5, f"a rule or an expiry gave an answer to {ask.key} that nobody has set", got, rows)
    is_expiry = any(row["resolved_by"] == EXPIRY and row["resolution_source"] == "policy" for row in rows)
    if is_expiry and got["t"] < ask.at + EXPIRY_S:
        report.violate(5, f"{ask.key} expired before its time", got, rows)


def check_repetition(facts, ask, report):
    """A second row, and an answer that is replaced, excuse much below, and so each needs what the documents name as its cause."""
    rows = facts.rows[ask.key]
    if len(rows) > 1 + len(ask.again):
        report.violate(1, f"{ask.key} was asked {1 + len(ask.again)} times and has {len(rows)} rows", rows, ask.again)
    for row in rows:
        if row["error_code"] == "answer_replaced" and (facts.history.workload != "hub" or not facts.is_disturbed(ask.at, ask.at)):
            report.violate(1, f"the answer to {ask.key} was replaced, and no hub was killed", row)


# Claim 2: the ledger and the server agree.


def check_rows_exist(facts, ask, report):
    """A request is stored before a client sees it; only a hub that has just begun passes it on before that."""
    is_new_hub = facts.history.workload == "hub" and facts.is_disturbed(ask.at, ask.at)
    if ask.key in facts.seen_at and not facts.rows[ask.key] and not is_new_hub:
        report.violate(4, f"a client got {ask.key}, and it has no row", vars(ask))


def check_winner(facts, ask, report):
    rows, answers = facts.rows[ask.key], facts.answers[ask.key]
    for got in ask.got if rows else []:
        report.chances["answers_compared"] += 1
        is_late = len(rows) > 1 or (ask.withdrawn_at or got["t"]) < got["t"]
        is_kept = any(agrees(ask, payload_of(each), got["payload"]) for each in answers)
        if not any(agrees(ask, row["resolved_payload_json"], got["payload"]) for row in rows) and not (is_kept and is_late):
            report.violate(2, f"the server got another answer to {ask.key} than the ledger has", got, rows, answers)
    for row in rows:
        mine = [each for each in answers if each["request_id"] == row["request_id"]]
        won = [each for each in mine if each["won"]]
        if row["status"] == "resolved" and row["resolution_source"] != "server":
            report.chances["winners_stored_behind_a_loser"] += bool(won) and mine.index(won[0]) > 0
            if len(won) != 1:
                report.violate(2, f"{row['request_id']} has {len(won)} winners", row, mine)
            elif not agrees(ask, row["resolved_payload_json"], payload_of(won[0])):
                report.violate(2, f"the winner of {row['request_id']} is not its answer", row, mine)
            elif not is_first(won[0], mine, row) and row["error_code"] != "answer_replaced" and not facts.is_late(ask.key) \
                    and not is_from_earlier_hub(facts, ask):
                report.violate(2, f"the winner of {row['request_id']} is not the first answer", row, mine)
        elif won and not (row["resolution_source"] == "policy" and facts.policies_of(ask)):
            report.violate(2, f"{row['request_id']} has a winner and was not answered", row, mine)


def is_first(winner, answers, row):
    """Whether no answer was before the winner. An expiry wins when it comes, and its answer is stored as it is written."""
    at = row["expires_at"] if row["resolved_by"] == EXPIRY else winner["at"]
    return all(each["at"] >= at for each in answers)


def is_from_earlier_hub(facts, ask):
    """Whether it waited while a hub took over, which passes answers on before it has read the ledger."""
    return facts.history.workload == "hub" and facts.is_disturbed(ask.at, max([each["t"] for each in ask.got] or [ask.at]))


def check_real_time(facts, ask, report):
    """No answer wins over one that was complete before it began."""
    winners = [given for given in facts.given[ask.key]
               if ask.got and given.payload == ask.got[0]["payload"] and given.begun_at <= ask.got[0]["t"]]
    if len(winners) != 1 or len(facts.rows[ask.key]) > 1 or facts.is_policy(ask.key):
        return
    for given in facts.given[ask.key]:
        if given.call and given.call.get("status") == 200 and given.ended_at < winners[0].begun_at:
            report.violate(2, f"a later answer to {ask.key} won", given.call, ask.got[0])
        report.chances["ordered_pairs"] += given.ended_at < winners[0].begun_at or winners[0].ended_at < given.begun_at


# Claim 3: losers.


def check_losers(facts, ask, report):
    rows, answers = facts.rows[ask.key], facts.answers[ask.key]
    unused = [each for each in answers if not each["won"]]
    for given in facts.given[ask.key]:
        got_it = any(got["payload"] == given.payload for got in ask.got)
        if given.call:
            is_loser = check_reply(facts, ask, given, got_it, report)
        else:
            is_loser = not got_it and rows and (given.line in facts.client_records or facts.has_read(given))
        if not is_loser:
            continue
        # The answer of a caller that lost is kept as it came, before it is made an answer to the server.
        forms = [given.payload] + ([given.call["body"]] if given.call else [])
        kept = next((each for each in unused if is_named(each, given)
                     and any(agrees(ask, payload_of(each), form) for form in forms)), None)
        if kept is not None:
            unused.remove(kept)
            report.chances["losers_kept"] += 1
        elif given.call is None and not facts.is_kept(ask, given):
            report.chances["losers_unkept_in_crash"] += 1
        elif not any(agrees(ask, row["resolved_payload_json"], given.payload) for row in rows):
            report.violate(3, f"a lost answer to {ask.key} was not kept", given, rows, answers)


def check_reply(facts, ask, given, got_it, report):
    """Whether the reply to a call says the truth; returns whether it says that another answer had won."""
    call, rows = given.call, facts.rows[ask.key]
    code, reply = call["status"], call["reply"]
    is_unique = "-" in json.dumps(given.payload)
    is_reply = code == 200 or call.get("is_tool") and isinstance(reply, dict) and "request" in reply
    if not is_reply:
        report.chances["callers_without_reply" if code is None else "callers_refused"] += 1
        if code is None and not facts.is_disturbed(given.begun_at, given.ended_at) and "imeout" not in str(reply):
            report.violate(3, f"a caller that answered {ask.key} had no reply, and nothing was killed", call)
        if code is not None and got_it and is_unique:
            report.violate(3, f"a caller was refused, and the server got its answer to {ask.key}", call, ask.got)
        return False
    stored, told_lost = reply["request"].get("resolved_payload"), reply.get("idempotent", code != 0)
    is_settled = facts.is_settled(ask, given.ended_at) and not facts.is_disturbed(given.begun_at, given.ended_at)
    is_replaced = any(row["error_code"] == "answer_replaced" for row in rows)
    report.chances["losers_told" if told_lost else "callers_told_won"] += 1
    if told_lost and got_it and is_unique and len(rows) == 1 and not is_replaced:
        report.violate(3, f"a caller was told that its answer to {ask.key} lost, and the server got it", call, ask.got)
    if told_lost and stored is None and is_settled:
        report.violate(3, f"a loser of {ask.key} was not told the answer that holds", call)
    # An answer that takes too long to be stored gives way to that of a client, which goes to the server without being stored.
    is_late = facts.is_late(ask.key)
    if told_lost and stored is not None and ask.withdrawn_at is None and not is_replaced and not is_late:
        if not any(agrees(ask, row["resolved_payload_json"], stored) for row in rows):
            report.violate(3, f"a loser of {ask.key} was told another answer than the ledger has", call, rows)
    if not told_lost and not got_it and is_settled:
        report.violate(3, f"a caller was told that its answer to {ask.key} won, and the server did not get it", call, rows)
    if not told_lost and ask.withdrawn_at is None and not is_replaced:
        if not any(agrees(ask, row["resolved_payload_json"], given.payload) for row in rows):
            report.violate(2, f"an answer to {ask.key} was acknowledged, and the ledger does not have it", call, rows)
    if call.get("is_tool") and stored != SECRET and (code == 0) != (not told_lost or stored == given.payload):
        report.violate(3, f"`respond` to {ask.key} ended with the wrong status", call)
    return told_lost


# Claims 2 and 4: what is stored first.


def check_storing(facts, ask, report):
    """Nothing passes while another program holds the lock of the ledger, unless its row says that it was not stored in time."""
    rows = facts.rows[ask.key]
    is_late = facts.is_late(ask.key)
    for begin, end in facts.locks:
        seen_at = facts.seen_at.get(ask.key, float("inf"))
        if begin <= ask.at <= end:
            report.chances["asked_while_locked"] += 1
            if seen_at <= end and not is_late:
                report.violate(4, f"a client got {ask.key} before it could be stored", vars(ask), rows)
        for given in facts.given[ask.key] if not is_late else []:
            got = next((each for each in ask.got if each["payload"] == given.payload), None)
            if not begin <= given.begun_at <= end:
                continue
            report.chances["answered_while_locked"] += 1
            if got and got["t"] <= end:
                report.violate(2, f"an answer to {ask.key} reached the server before it could be stored", given, got, rows)
            if given.call and given.call.get("status") == 200 and given.ended_at <= end:
                report.violate(2, f"an answer to {ask.key} was acknowledged before it could be stored", given.call, rows)


# Claims 4 and 9: states.


def check_showing(facts, ask, report):
    """`late` excuses much above, so something must have waited; without it, clients do not see what a rule answers, or what is held."""
    if is_from_earlier_hub(facts, ask):
        return
    rows, seen_at = facts.rows[ask.key], facts.seen_at.get(ask.key)
    if facts.is_late(ask.key):
        report.chances["late"] += 1
        if not facts.has_waited:
            report.violate(9, f"{ask.key} is late, and nothing has waited for the ledger", rows, ask.got)
    elif seen_at and facts.history.workload == "hub" and ask.got and ask.got[0]["t"] < seen_at:
        report.chances["shown_after_its_answer"] += 1  # a copy for another client that the hub had not read by then
    elif seen_at and rows and facts.is_for_nobody(ask):
        report.violate(7, f"a client got {ask.key}, which a rule answers or which is held", rows)


def check_content(ask, row, report):
    """A row is what decides: it says what the server asked."""
    report.chances["contents_compared"] += 1
    stored = member(row, "request_payload_json", "request_payload")
    if stored is not None and ask.params is not None and parsed(stored) != ask.params:
        report.violate(6, f"{row['request_id']} has another request than the server made", row, ask.params)


def check_listing(facts, listing, report):
    since, at, keys = listing["since"], listing["t"], listing["keys"]
    if keys is None:
        report.violate(4, "pending requests cannot be listed after the faults have ended", listing)
        return
    for ask in facts.asks.values():
        if ask.kind == "tool" or facts.is_excused(ask) or ask.at > since or ask.server_end_at < at:
            continue
        closed_at = min([each["t"] for each in ask.got] + [ask.withdrawn_at or float("inf")])
        if closed_at < since:
            report.chances["closed_when_listed"] += 1
            if ask.key in keys:
                report.violate(9, f"{ask.key} is closed and listed as pending", ask.got, facts.rows[ask.key])
        elif closed_at > at and not facts.is_policy_before(ask.key, at):
            report.chances["open_when_listed"] += 1
            if ask.key not in keys:
                report.violate(4, f"{ask.key} waits at the server and is not listed", facts.rows[ask.key], listing)
            elif (closed_at == float("inf") and ask.server_end_at > facts.due(at)
                  and any(given.begun_at > at for given in facts.given[ask.key])):
                report.violate(4, f"{ask.key} was listed and could not be answered", facts.given[ask.key], facts.rows[ask.key])


def check_state(facts, ask, row, report):
    name, status = row["request_id"], row["status"]
    begin, end = facts.clock.range_of(wall_of(row["resolved_at"]))
    if status not in STATES:
        report.violate(9, f"{name} is {status!r}, which is no documented state", row)
    if status == "resolved" and not (row["resolved_at"] and begin <= facts.clock.last and ask.at <= end):
        report.violate(9, f"{name} has no time in this round at which it was resolved", row)
    if status == "orphaned":
        report.chances["orphaned"] += 1
        if row["error_code"] not in ("server_exited", "server_restarted"):
            report.violate(9, f"{name} is orphaned without a documented reason", row)
        if ask.server_end_at > end or ask.server_end_at == float("inf"):
            report.violate(9, f"{name} was orphaned while its server ran", row, {"server_end_at": ask.server_end_at, "at": end})
        if ask.got and len(facts.rows[ask.key]) == 1 and not facts.is_disturbed(ask.got[0]["t"], ask.got[0]["t"]):
            report.violate(2, f"{name} is orphaned, and the server had its answer", row, ask.got)
    if status in ("pending", "expired") and facts.is_closed:
        report.violate(9, f"{name} is {status} after its session has ended", row)
    if ask.got or ask.withdrawn_at is not None or status != "resolved":
        return
    if row["resolution_source"] == "server":
        report.violate(5, f"{name} ended as withdrawn, and the server did not withdraw it", row)
    elif ask.server_end_at < facts.due(end) or facts.history.workload != "hub" and facts.is_disturbed(begin, end):
        report.chances["answers_lost_in_crash"] += 1
    else:
        report.violate(2, f"{name} is resolved, and the server never got an answer", row)


# Claim 6: provenance.


def check_names(facts, ask, row, report):
    source, by, name = row["resolution_source"], row["resolved_by"], row["request_id"]
    if row["status"] == "resolved" and source == "policy":
        report.chances["by_rule" if str(by).startswith("rule:") else "by_expiry"] += 1
        if by not in facts.policies_of(ask):
            report.violate(6, f"{name} was answered by a policy that nobody has set", row)
        if parsed(row["resolved_payload_json"]) != DECLINE:
            report.violate(5, f"a rule or an expiry gave an answer to {ask.key} that nobody has set", row)
    elif row["status"] == "resolved" and source != "server":
        givers = [given for given in facts.given[ask.key] if agrees(ask, row["resolved_payload_json"], given.payload)]
        report.chances["winners_named"] += 1
        report.chances["by_fleet" if str(by).startswith("fleet:") else f"by_{source}"] += 1
        if not any(names(source, by, given) for given in givers):
            report.violate(6, f"{name} names {source} {by!r}, who did not give this answer", row, givers)
    for answer in (each for each in facts.answers[ask.key] if each["request_id"] == name):
        source, by = member(answer, "source", "resolution_source"), member(answer, "by", "resolved_by")
        is_own = source == "policy" and by in facts.policies_of(ask) and parsed(payload_of(answer)) == DECLINE
        if not is_own and not any(is_named(answer, given) for given in facts.given[ask.key]):
            report.violate(6, f"an answer to {ask.key} names somebody who gave none", answer, facts.given[ask.key])
