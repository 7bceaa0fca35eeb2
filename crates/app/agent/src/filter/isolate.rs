//! What the kernel refuses is found by halves, and stands as before; everything else is carried
//! out.

use std::collections::BTreeSet;

use kernel::{Error, Result};
use policy::input::PolicyId;
use policy::intent::{Dirty, Host, Intent, TierInForce};
use policy::render::{Refused, Renderer, Standing, Step};

use super::commit::{HASTY, PATIENT, Setback, is_passing};
use super::netfilter::Netfilter;
use super::{FilterTable, Wanted, objects};

/// So many objects in a row are refused for reasons that may pass, and not one is carried out: the
/// kernel takes nothing at the moment, and no object is to blame.
const STORM: usize = 8;

impl<K: Netfilter> FilterTable<K> {
    /// Carries out what is dirty without what the kernel refuses. `is_whole` if all of it at once
    /// was refused before.
    pub(super) fn isolate(
        &mut self,
        renderer: &mut Renderer,
        wanted: &Wanted<'_>,
        is_whole: bool,
    ) -> Result<(), Setback> {
        let n_commits = self.n_commits;
        renderer.hold(wanted.dirty);
        let mut blamed: Vec<(Refused, Error)> = Vec::new();
        let nothing = Dirty::default();
        let mut around = wanted.around.clone();
        // What no object is to blame for comes first. If that is refused, the surroundings that
        // stand go on standing.
        match self.carry_out(renderer, &Wanted { dirty: &nothing, ..*wanted }, HASTY) {
            Ok(()) => {}
            Err(Setback::Refused(error)) => {
                blamed.push((Refused::Surroundings, error));
                around = renderer.surroundings().clone();
            }
            Err(lost) => return Err(lost),
        }
        let pieces = renderer.pieces(wanted.dirty);
        // From left to right: what comes later may rest on what comes before.
        let middle = if is_whole && blamed.is_empty() { pieces.len() / 2 } else { 0 };
        let halves = [middle..pieces.len(), 0..middle];
        let mut left: Vec<_> = halves.into_iter().filter(|range| !range.is_empty()).collect();
        while let Some(range) = left.pop() {
            let mut dirty = Dirty::default();
            pieces.get(range.clone()).unwrap_or_default().iter().for_each(|it| dirty.join(it));
            let some = Wanted { intent: wanted.intent, dirty: &dirty, around: &around };
            let error = match self.carry_out(renderer, &some, HASTY) {
                Ok(()) => continue,
                Err(Setback::Refused(error)) => error,
                Err(lost) => return Err(lost),
            };
            if range.len() > 1 {
                let middle = range.start + range.len() / 2;
                left.extend([middle..range.end, range.start..middle]);
                continue;
            }
            if blamed.len() >= STORM && self.n_commits == n_commits && is_passing(&error) {
                return Err(Setback::Refused(error));
            }
            renderer.refused(&dirty);
            blamed.extend(objects(&dirty).next().map(|object| (object, error)));
        }
        if !renderer.is_tidy() {
            let last = Wanted { intent: wanted.intent, dirty: &nothing, around: &around };
            match self.carry_out(renderer, &last, HASTY) {
                Ok(()) | Err(Setback::Refused(_)) => {}
                Err(lost) => return Err(lost),
            }
        }
        let cause = self.cause(renderer, wanted, &blamed);
        for (object, error) in blamed {
            self.blame(object, &error, cause.as_ref());
        }
        Ok(())
    }

    /// The policy without which endpoints would have been carried out, if that can be told: the
    /// only one of those that are new or changed that all of them have, and none that was. One
    /// endpoint that is new may be refused for what it is itself.
    fn cause(
        &self,
        renderer: &Renderer,
        wanted: &Wanted<'_>,
        blamed: &[(Refused, Error)],
    ) -> Option<PolicyId> {
        let (bad, good): (Vec<Refused>, Vec<Refused>) = objects(wanted.dirty)
            .filter(is_endpoint)
            .partition(|it| blamed.iter().any(|(object, _)| object == it));
        let has = |object: &Refused, id: &PolicyId| {
            tiers_of(object, wanted.intent)
                .any(|it| it.ingress.contains(id) || it.egress.contains(id))
        };
        // What was found to be the cause before is so still, though nothing of it is new.
        let mut suspects: BTreeSet<&PolicyId> = wanted.dirty.policies.iter().collect();
        suspects.extend(self.causes.values());
        suspects
            .retain(|id| bad.iter().all(|it| has(it, id)) && !good.iter().any(|it| has(it, id)));
        let is_known = match bad.as_slice() {
            [Refused::Workload(key)] => renderer.has_workload(key),
            all => all.len() > 1,
        };
        let is_told = is_known && suspects.len() == 1;
        suspects.pop_first().filter(|_| is_told).cloned()
    }

    fn blame(&mut self, object: Refused, error: &Error, cause: Option<&PolicyId>) {
        let why = match error {
            Error::Rejected(failures) => failures.first().map(ToString::to_string),
            _ => None,
        };
        let why = why.unwrap_or_else(|| error.to_string());
        let why = match cause.filter(|_| is_endpoint(&object)) {
            Some(cause) => {
                self.causes.insert(object.clone(), cause.clone());
                format!("the kernel refuses policy {cause}: {why}")
            }
            None => format!("the kernel refuses it: {why}"),
        };
        self.refused.insert(object, why);
        self.try_later();
    }

    /// Installs everything without what the kernel refuses. What is in force stays so until all
    /// that can be is in place; where nothing is, everything is closed first.
    pub(super) fn install_in_pieces(
        &mut self,
        renderer: &mut Renderer,
        wanted: &Wanted<'_>,
    ) -> Result<()> {
        let present = self.ask(K::tables)?;
        let everything = wanted.intent.everything();
        let wanted = &Wanted { dirty: &everything, ..*wanted };
        let mut other = renderer.for_meanwhile();
        match renderer.standing(&present) {
            Standing { own: Some(true), meanwhile } => {
                if meanwhile.is_some() {
                    self.step(other.silenced(&present))?;
                }
                self.lay(&mut other, wanted, meanwhile.is_some())?;
                self.step(other.woken())?;
                self.step(renderer.silenced(&present).waiting())?;
                self.lay(renderer, wanted, true)?;
            }
            Standing { meanwhile: Some(true), .. } => self.lay(renderer, wanted, false)?,
            Standing { .. } => {
                let bare = renderer.replace(&Intent::default(), wanted.around, &present);
                self.take(&bare.steps, PATIENT).map_err(|(_, setback)| setback)?;
                renderer.committed(bare);
                return Ok(self.isolate(renderer, wanted, false)?);
            }
        }
        self.step(renderer.woken())?;
        self.step(other.silenced(&present).waiting())?;
        self.step(other.removed().waiting())
    }

    /// Fills tables that see no packets.
    fn lay(&mut self, renderer: &mut Renderer, wanted: &Wanted<'_>, waits: bool) -> Result<()> {
        self.refused.clear();
        self.causes.clear();
        let mut bare = renderer.laid(&Intent::default(), wanted.around);
        if let Some(first) = bare.steps.first_mut() {
            first.waits = waits;
        }
        self.take(&bare.steps, PATIENT).map_err(|(_, setback)| setback)?;
        renderer.committed(bare);
        Ok(self.isolate(renderer, wanted, false)?)
    }

    fn step(&mut self, step: Step) -> Result<()> {
        Ok(self.take(&[step], PATIENT).map_err(|(_, setback)| setback)?)
    }
}

fn is_endpoint(object: &Refused) -> bool {
    matches!(object, Refused::Workload(_) | Refused::Host(_))
}

/// The tiers of an endpoint.
pub(crate) fn tiers_of<'a>(
    object: &Refused,
    intent: &'a Intent,
) -> impl Iterator<Item = &'a TierInForce> {
    let (workload, host) = match object {
        Refused::Workload(key) => (intent.workloads.get(key), None),
        Refused::Host(key) => (None, intent.hosts.get(key)),
        _ => (None, None),
    };
    let of_workload = workload.into_iter().flat_map(|it| &it.tiers);
    of_workload.chain(host.into_iter().flat_map(Host::all_tiers))
}
