//! Requests that the server of a hub asks before the hub has read its ledger.
//!
//! They wait for nothing: a client gets them and may answer. But the name that such a request has until then may be that of
//! another row. So the ledger gets nothing about a request under that name, which only tells this hub's requests apart: all orders
//! are kept here, and go out once the ledger is read and each request has its row. A request that an earlier hub had already gets
//! the row of that. An answer in it is sent, unless another one goes to the server already, which then replaces it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::before::{AnswerBefore, OpenBefore, RequestDigest, request_digest};
use super::ended::LateAnswer;
use super::names::request_name;
use super::open::{Commit, Decider, ErrorText, RequestState, Why, withdrawn};
use super::{Requests, answer, resolve};
use crate::engine::attached_client::Clients;
use crate::engine::model::{
    ApiReply, Effect, LedgerEntry, Note, Now, Order, RequestEnd, RequestRow, RequestSource, Token, Verdict, Warning,
};
use crate::wire::RpcId;

/// Limits of the kept orders. Beyond them, the oldest requests that have ended are not stored.
const ORDERS_MAX: usize = 4_096;
const BYTES_MAX: usize = 16 << 20;

/// Requests that are told apart; beyond that, the oldest ones that have ended are forgotten.
const ASKED_MAX: usize = 16_384;

/// The error of an answer that has replaced one of an earlier hub.
const REPLACED: ErrorText =
    ("answer_replaced", "an earlier hub had stored another answer, which the server may have got");
const REPLACED_SENT: ErrorText =
    ("answer_replaced", "an earlier hub had sent another answer, which the server had not confirmed");

/// The requests so far, and what is to be stored about them.
#[derive(Debug, Default)]
pub(super) struct Unread {
    /// Oldest first.
    asked: VecDeque<AskedBefore>,
    /// Each with the name of its request.
    orders: VecDeque<(String, Order)>,
    bytes: usize,
    has_warned: bool,
}

#[derive(Debug)]
struct AskedBefore {
    /// Its name until the ledger is read.
    name: String,
    id: RpcId,
    raw_id: String,
    digest: RequestDigest,
    /// The ledger stores answers to it as they are.
    is_whole: bool,
    /// Why it has ended.
    over: Option<Why>,
}

/// The row that a request gets.
struct NewRow<'a> {
    name: String,
    is_whole: bool,
    found: InLedger<'a>,
}

/// What the ledger has of a request.
#[derive(Clone, Copy)]
enum InLedger<'a> {
    /// Nothing.
    New,
    /// A row that waits for an answer.
    Open,
    /// An answer, which is sent now.
    Answer(&'a AnswerBefore),
    /// An answer, but another one goes to the server already.
    OtherAnswer(&'a AnswerBefore),
    /// An answer, and the request has ended without another one.
    Ended(&'a AnswerBefore, Option<Why>),
}

/// The rows in the ledger from the run of an earlier hub.
struct EarlierRows<'a> {
    ended: HashSet<&'a str>,
    open: HashSet<&'a str>,
    newest: HashMap<RpcId, &'a OpenBefore>,
}

impl<'a> EarlierRows<'a> {
    fn of(ended: &'a [String], rows: &'a [OpenBefore]) -> EarlierRows<'a> {
        let mut newest = HashMap::new();
        // The newest come first.
        for row in rows {
            if let Some(id) = row.rpc_id() {
                newest.entry(id).or_insert(row);
            }
        }
        let open = rows.iter().map(|row| &*row.request_id).collect();
        EarlierRows { ended: ended.iter().map(|name| &**name).collect(), open, newest }
    }

    fn has(&self, name: &str) -> bool {
        self.ended.contains(name) || self.open.contains(name)
    }
}

impl AskedBefore {
    fn of(row: &RequestRow) -> Option<AskedBefore> {
        let params = row.payload.as_deref();
        let id = serde_json::from_str(&row.rpc_request_id).ok().map(RpcId::from_raw)?;
        Some(AskedBefore {
            name: row.request_id.clone(),
            id,
            raw_id: row.rpc_request_id.clone(),
            digest: request_digest(&row.method, params),
            is_whole: matches!(answer::verdict(row.kind, params.unwrap_or_default()), Verdict::Open),
            over: None,
        })
    }
}

impl Unread {
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.orders.is_empty()
    }

    pub(super) fn is_summed(&self) -> bool {
        self.bytes == self.orders.iter().map(|(_, order)| order.entry().weight()).sum::<usize>()
    }

    fn add(&mut self, mut order: Order) {
        let Some(name) = order.entry_mut().request_id_mut().cloned() else { return };
        if let LedgerEntry::RequestOpened(row) = order.entry() {
            self.asked.extend(AskedBefore::of(row));
        }
        self.bytes += order.entry().weight();
        self.orders.push_back((name, order));
    }

    /// The server needs no answer any more.
    pub(super) fn over(&mut self, name: &str, why: Why) {
        if let Some(asked) = self.asked.iter_mut().rev().find(|asked| asked.name == name) {
            asked.over = Some(why);
        }
    }

    /// The ledger cannot be used, which its caller hears: an entry that is to be stored now or never is not stored.
    pub(super) fn refused(&mut self, refused: Token) {
        let Some(at) = self.orders.iter().position(|(_, order)| order.token() == Some(refused)) else { return };
        match self.orders.remove(at) {
            Some((name, Order::KeepFirst(_, entry))) => self.orders.insert(at, (name, Order::Keep(entry))),
            Some((_, order)) => self.bytes -= order.entry().weight(),
            None => {}
        }
    }

    /// Forgets orders; returns their tokens.
    pub(super) fn forget(&mut self, is_meant: impl Fn(&str, &LedgerEntry) -> bool) -> Vec<Token> {
        let (forgotten, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.orders).into_iter().partition(|(name, order)| is_meant(name, order.entry()));
        self.orders = kept;
        self.bytes -= forgotten.iter().map(|(_, order)| order.entry().weight()).sum::<usize>();
        forgotten.iter().filter_map(|(_, order)| order.token()).collect()
    }

    fn is_full(&self) -> bool {
        self.orders.len() > ORDERS_MAX || self.bytes > BYTES_MAX
    }

    /// Forgets the oldest requests that have ended, until a quarter of the room is free; returns the tokens of their orders.
    fn forget_ended(&mut self, open: &HashSet<&str>) -> Vec<Token> {
        let mut weights: HashMap<&str, (usize, usize)> = HashMap::new();
        for (name, order) in &self.orders {
            let (orders, bytes) = weights.entry(name).or_default();
            *orders += 1;
            *bytes += order.entry().weight();
        }
        let (mut orders, mut bytes) = (self.orders.len(), self.bytes);
        let mut forgotten = HashSet::new();
        for (name, _) in self.orders.iter().filter(|(name, _)| !open.contains(&**name)) {
            if orders <= ORDERS_MAX / 4 * 3 && bytes <= BYTES_MAX / 4 * 3 {
                break;
            }
            if let Some((of_name, bytes_of_name)) = weights.get(&**name)
                && forgotten.insert(name.clone())
            {
                orders -= of_name;
                bytes -= bytes_of_name;
            }
        }
        self.forget(|name, _| forgotten.contains(name))
    }

    /// Forgets what a request showed before it changed once more, repeated notes that it was late, and answers that have lost.
    fn forget_superseded(&mut self) {
        let is_shown = |order: &Order| matches!(order.entry(), LedgerEntry::RequestShown { .. });
        let is_late = |order: &Order| matches!(order.entry(), LedgerEntry::RequestLate { .. });
        let mut newest: HashMap<(String, bool), usize> = HashMap::new();
        for (at, (name, order)) in self.orders.iter().enumerate() {
            if is_shown(order) || is_late(order) {
                newest.insert((name.clone(), is_late(order)), at);
            }
        }
        let newest: HashSet<usize> = newest.into_values().collect();
        let mut at = 0;
        let bytes = &mut self.bytes;
        self.orders.retain(|(_, order)| {
            let is_newest = newest.contains(&at);
            at += 1;
            let has_lost = matches!(order.entry(), LedgerEntry::AnswerLost(_));
            let stays = !has_lost && (is_newest || !(is_shown(order) || is_late(order)));
            if !stays {
                *bytes -= order.entry().weight();
            }
            stays
        });
    }

    fn opens(&self, name: &str) -> bool {
        self.orders.iter().any(|(of, order)| of == name && matches!(order.entry(), LedgerEntry::RequestOpened(_)))
    }

    /// An answer to the request goes to the server.
    fn is_answered(&self, name: &str) -> bool {
        self.orders.iter().any(|(of, order)| match order {
            Order::Keep(LedgerEntry::RequestEnded(end)) | Order::KeepFirst(_, LedgerEntry::RequestEnded(end)) => {
                of == name && end.payload.is_some()
            }
            Order::Keep(_) | Order::KeepFirst(..) | Order::Commit(..) | Order::Read(..) => false,
        })
    }
}

/// The end of a request whose answer goes to the server, although the ledger has another one.
fn replaces(end: &RequestEnd, answer: &AnswerBefore, is_whole: bool) -> RequestEnd {
    let is_same = is_whole && end.payload.as_ref() == Some(&answer.payload);
    let error = if answer.is_dispatched { REPLACED_SENT } else { REPLACED };
    RequestEnd { instead: true, error: end.error.or((!is_same).then_some(error)), ..end.clone() }
}

impl Requests {
    /// Keeps the orders about requests as long as the ledger is not read. It gets the news that there are some, so that it is
    /// opened, and reports if it cannot be used.
    pub(in crate::engine) fn keep_unread(&mut self, effects: &mut Vec<Effect>) {
        if self.is_read {
            return;
        }
        let is_unread = |effect: &mut Effect| {
            // The news of one that is kept already stays.
            let Effect::Order(order @ (Order::Keep(_) | Order::KeepFirst(..) | Order::Commit(..))) = effect else {
                return false;
            };
            order.entry_mut().request_id_mut().is_some()
        };
        let unread: Vec<Effect> = effects.extract_if(.., is_unread).collect();
        for effect in unread {
            if let Effect::Order(order) = effect {
                let token = order.token();
                effects.extend(token.map(|token| Effect::Order(Order::Read(token, order.entry().clone()))));
                self.unread.add(order);
            }
        }
        if self.unread.is_full() || self.unread.asked.len() > ASKED_MAX {
            self.forget_unread(effects);
        }
    }

    /// Forgets the oldest requests that have ended. An open one has its row here.
    fn forget_unread(&mut self, effects: &mut Vec<Effect>) {
        let open: HashSet<&str> = self.open.values().map(|request| &*request.row.request_id).collect();
        let mut tokens = Vec::new();
        if self.unread.is_full() {
            // What the ledger would replace by the next one, or has only beside an answer.
            self.unread.forget_superseded();
        }
        if self.unread.is_full() {
            tokens = self.unread.forget_ended(&open);
        }
        if self.unread.is_full() {
            // The commit stays: at its deadline a request that waits for it goes on.
            self.unread.forget(|_, entry| matches!(entry, LedgerEntry::RequestOpened(_)));
        }
        while self.unread.asked.len() > ASKED_MAX {
            let Some(at) = self.unread.asked.iter().position(|asked| !open.contains(&*asked.name)) else { break };
            self.unread.asked.remove(at);
        }
        tokens.iter().for_each(|token| drop(self.commits.remove(token)));
        if !std::mem::replace(&mut self.unread.has_warned, true) {
            effects.push(Effect::Warn(Warning::RequestsNotStored));
        }
    }

    /// The ledger has been read: the names of the requests that have ended under another hub, and the rows that are open or
    /// whose answers the server may not have got.
    pub(in crate::engine) fn remember(
        &mut self,
        now: Now,
        ended: &[String],
        rows: Vec<OpenBefore>,
        clients: &Clients,
        effects: &mut Vec<Effect>,
    ) {
        // If the ledger is opened once more, its rows are those of this run.
        if std::mem::replace(&mut self.is_read, true) {
            return;
        }
        ended.iter().chain(rows.iter().map(|row| &row.request_id)).for_each(|name| self.name_is_used(name));
        let unread = std::mem::take(&mut self.unread);
        let places = self.places(now, &unread, &EarlierRows::of(ended, &rows), effects);
        let mut open = Vec::new();
        for id in self.ids_where(|_| true) {
            let Some((name, place)) = self.open.get(&id).and_then(|it| places.get_key_value(&it.row.request_id)) else {
                continue;
            };
            if matches!(place.found, InLedger::New) && !unread.opens(name) {
                let row = RequestRow { request_id: place.name.clone(), ..self.open[&id].row.clone() };
                effects.push(Effect::keep(LedgerEntry::RequestOpened(Box::new(row))));
            }
            open.push((id, *name != place.name, place.found));
        }
        let names = places.iter().map(|(before, place)| (before.clone(), place.name.clone())).collect();
        self.rename(&names);
        for (name, order) in unread.orders {
            // The caller of an answer that is not stored yet may have read the other request of this name.
            match places.get(&name) {
                Some(place) if name != place.name && is_of_caller(&order) => {}
                Some(place) => self.place_order(now, order, place, effects),
                None => {}
            }
        }
        for (id, is_renamed, found) in open {
            self.place_open(now, &id, is_renamed, found, clients, effects);
        }
        let asked: HashSet<&RpcId> = unread.asked.iter().map(|asked| &asked.id).collect();
        self.take_before(now, rows, |id| asked.contains(id), effects);
    }

    /// The rows of the requests, by the names that these had until now.
    fn places<'a>(
        &mut self,
        now: Now,
        unread: &Unread,
        rows: &EarlierRows<'a>,
        effects: &mut Vec<Effect>,
    ) -> HashMap<String, NewRow<'a>> {
        let Some(generation) = self.generation.clone() else { return HashMap::new() };
        let (mut places, mut settled) = (HashMap::new(), HashSet::new());
        for asked in &unread.asked {
            // A further request of the same id is not that of the row.
            let row = rows.newest.get(&asked.id).copied().filter(|row| settled.insert(&*row.request_id));
            let place = if let Some(row) = row.filter(|row| row.digest == asked.digest) {
                let found = row
                    .answer
                    .as_ref()
                    .map_or(InLedger::Open, |answer| self.found(unread, asked, row, answer, effects));
                NewRow { name: row.request_id.clone(), is_whole: asked.is_whole, found }
            } else {
                // The server asks for something else under its id.
                match row.map(|row| (&row.request_id, &row.answer)) {
                    Some((name, None)) => resolve(withdrawn(name.clone(), now), effects),
                    Some((name, Some(answer))) => effects.extend(answer.later_entry(None, name.clone(), now.unix_us)),
                    None => {}
                }
                let name = match rows.has(&asked.name) {
                    true => self.free_name(request_name(&generation, &asked.id, &asked.raw_id)),
                    false => asked.name.clone(),
                };
                NewRow { name, is_whole: asked.is_whole, found: InLedger::New }
            };
            if place.name != asked.name {
                let (request_id, before) = (place.name.clone(), asked.name.clone());
                effects.push(Effect::Note(Note::RequestRenamed { request_id, before }));
            }
            places.insert(asked.name.clone(), place);
        }
        places
    }

    /// What becomes of a stored answer.
    fn found<'a>(
        &self,
        unread: &Unread,
        asked: &AskedBefore,
        row: &OpenBefore,
        answer: &'a AnswerBefore,
        effects: &mut Vec<Effect>,
    ) -> InLedger<'a> {
        let request = self.open.get(&asked.id).filter(|request| request.row.request_id == asked.name);
        let by_policy = self.by_policy.values().any(|policy| policy.end.request_id == asked.name);
        match request {
            _ if unread.is_answered(&asked.name) => InLedger::OtherAnswer(answer),
            Some(_) if by_policy => InLedger::OtherAnswer(answer),
            None => InLedger::Ended(answer, asked.over),
            Some(request)
                if is_over(&request.state) || answer.line(&row.rpc_request_id, &request.verdict).is_some() =>
            {
                InLedger::Answer(answer)
            }
            Some(_) => {
                let (request_id, by) = (row.request_id.clone(), answer.by.clone());
                effects.push(Effect::keep(LedgerEntry::RequestReopened { request_id, by }));
                InLedger::Open
            }
        }
    }

    /// The ledger gets an order about a request that has its row now, unless the row makes it void.
    fn place_order(&mut self, now: Now, mut order: Order, place: &NewRow<'_>, effects: &mut Vec<Effect>) {
        order.entry_mut().request_id_mut().into_iter().for_each(|name| place.name.clone_into(name));
        let answer = match place.found {
            InLedger::New | InLedger::Open => return effects.push(Effect::Order(order)),
            InLedger::Answer(answer) | InLedger::OtherAnswer(answer) | InLedger::Ended(answer, _) => answer,
        };
        let is_commit = matches!(order, Order::Commit(..));
        match (order.entry_mut(), place.found) {
            (LedgerEntry::RequestEnded(end), InLedger::OtherAnswer(_)) if end.payload.is_some() && !is_commit => {
                **end = replaces(end, answer, place.is_whole);
                effects.push(Effect::Order(order));
            }
            (LedgerEntry::RequestEnded(end), InLedger::Ended(_, why)) if end.payload.is_none() => {
                effects.extend(answer.later_entry(why, place.name.clone(), now.unix_us));
            }
            (
                LedgerEntry::RequestEnded(_) | LedgerEntry::RequestExpired { .. } | LedgerEntry::RequestReopened { .. },
                _,
            ) => {
                if let Some(token) = order.token() {
                    self.holds.retain(|(held, _)| *held != token);
                    self.commits.remove(&token);
                }
            }
            (_, _) => effects.push(Effect::Order(order)),
        }
    }

    /// Goes on with an open request.
    fn place_open(
        &mut self,
        now: Now,
        id: &RpcId,
        is_renamed: bool,
        found: InLedger<'_>,
        clients: &Clients,
        effects: &mut Vec<Effect>,
    ) {
        let Some(request) = self.open.get(id) else { return };
        let name = &request.row.request_id;
        match (found, &request.state) {
            (InLedger::Answer(answer), _) => {
                self.give_way(now, id, answer, effects);
                self.send_stored(id, answer.clone(), effects);
            }
            (InLedger::OtherAnswer(answer), _) => {
                let is_whole = matches!(request.verdict, Verdict::Open);
                for policy in self.by_policy.values_mut().filter(|policy| policy.end.request_id == *name) {
                    policy.end = replaces(&policy.end, answer, is_whole);
                }
            }
            (InLedger::New | InLedger::Open, RequestState::Deciding(deciding))
                if is_renamed && matches!(deciding.decider, Decider::Api(..)) =>
            {
                let is_its = |commit: &Commit| matches!(commit, Commit::Decides(of) if of == id);
                self.commits.retain(|_, commit| !is_its(commit));
                self.decided(now, id, false, clients, effects);
            }
            (InLedger::New | InLedger::Open | InLedger::Ended(..), _) => {}
        }
    }

    /// Nobody else answers a request of which the ledger has an answer.
    fn give_way(&mut self, now: Now, id: &RpcId, answer: &AnswerBefore, effects: &mut Vec<Effect>) {
        self.commits.retain(|_, commit| !matches!(commit, Commit::Decides(of) | Commit::Expires(of) if of == id));
        let Some(request) = self.open.get_mut(id) else { return };
        if let RequestState::Deciding(deciding) = std::mem::replace(&mut request.state, RequestState::Pending) {
            deciding.decider.reply(ApiReply::NotOpen, effects);
            let lost = deciding.runner_up.map(|(_, given)| LedgerEntry::AnswerLost(Box::new(given)));
            effects.extend(lost.map(Effect::keep));
            if let Some(why) = deciding.over {
                effects.extend(answer.later_entry(Some(why), request.row.request_id.clone(), now.unix_us));
                self.forget(id, LateAnswer::Withhold);
            }
        }
    }

    /// Gives requests other names, in all that mentions them.
    fn rename(&mut self, names: &HashMap<String, String>) {
        let change = |name: &mut String| names.get(name).into_iter().for_each(|new| new.clone_into(name));
        for request in self.open.values_mut() {
            change(&mut request.row.request_id);
            request.answered_before.iter_mut().for_each(change);
            request.end.iter_mut().for_each(|end| change(&mut end.request_id));
            if let RequestState::Deciding(deciding) = &mut request.state {
                deciding.runner_up.iter_mut().for_each(|(_, given)| change(&mut given.request_id));
            }
        }
        for commit in self.commits.values_mut() {
            match commit {
                Commit::Opens { request_id } | Commit::GoesOn { request_id } => change(request_id),
                Commit::Decides(_) | Commit::Expires(_) => {}
            }
        }
        self.dispatches.values_mut().for_each(|dispatch| change(&mut dispatch.request_id));
        self.by_policy.values_mut().for_each(|policy| change(&mut policy.end.request_id));
        self.ended.names.values_mut().for_each(|(name, _)| change(name));
    }
}

/// It is to store the answer of an API caller.
fn is_of_caller(order: &Order) -> bool {
    matches!(order, Order::Commit(_, LedgerEntry::RequestEnded(end)) if end.source != RequestSource::Policy)
}

/// An answer is being stored, but the server needs none any more.
fn is_over(state: &RequestState) -> bool {
    matches!(state, RequestState::Deciding(deciding) if deciding.over.is_some())
}
