//! A client's answer that comes while the ledger stores an earlier answer. It is withheld, because the earlier one wins, but not
//! for ever: a ledger that hangs must not keep the server from an answer.

use super::open::{Commit, Decider, RequestState};
use super::{Requests, inject, resolve};
use crate::engine::model::{ApiReply, Effect, LedgerEntry, Now, RequestEnd, RequestStatus};
use crate::wire::RpcId;

impl Requests {
    /// Sends the withheld answer of a client.
    pub(super) fn runner_up_wins(&mut self, id: &RpcId, bytes: Vec<u8>, end: RequestEnd, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get_mut(id) else { return };
        let end = request.ended(end);
        request.is_answered(None, self.last_conn);
        request.end = Some(Box::new(end.clone()));
        resolve(end, effects);
        self.tokens += 1;
        effects.push(inject(bytes, &request.verdict, self.tokens));
        self.await_dispatch(self.tokens, id);
    }

    /// Sends the answers of clients that have waited too long for the ledger to store an earlier answer. The earlier one is not
    /// sent, also if it is stored later.
    pub(super) fn runners_up_tick(&mut self, now: Now, effects: &mut Vec<Effect>) {
        for id in self.ids_where(|request| request.runner_up_due().is_some_and(|due| due <= now.elapsed)) {
            if let Some(request) = self.open.get_mut(&id) {
                request.rule = None;
            }
            self.give_up_storing(&id, effects);
        }
    }

    /// Gives up an answer that the ledger has not stored in time. The client's answer wins, if there is one.
    pub(super) fn give_up_storing(&mut self, id: &RpcId, effects: &mut Vec<Effect>) {
        let Some(request) = self.open.get_mut(id) else { return };
        let RequestState::Deciding(deciding) = std::mem::replace(&mut request.state, RequestState::Pending) else {
            return;
        };
        request.is_stored_late = true;
        self.is_trusted = false;
        self.commits.retain(|_, commit| !matches!(commit, Commit::Decides(of) if of == id));
        deciding.decider.reply(ApiReply::NotKept, effects);
        if let Some((bytes, given)) = deciding.runner_up {
            let end = RequestEnd::answered(given, RequestStatus::Resolved);
            self.runner_up_wins(id, bytes, RequestEnd { late: true, ..end }, effects);
        } else if let Decider::Rule(rule) = &deciding.decider {
            // The ledger carries out orders in order, so this one finds the answer, if it is stored at all.
            let request_id = request.row.request_id.clone();
            effects.push(Effect::keep(LedgerEntry::RequestReopened { request_id, by: rule.by() }));
        }
    }
}
