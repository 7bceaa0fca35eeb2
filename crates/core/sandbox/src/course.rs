//! The course of one call: which step comes next, what is written down in between, and where it
//! goes when a step fails.
//!
//! The steps and their order are [`life`](crate::life)'s. Whoever runs a course does what
//! [`Course::next`] says and tells what came of it: the agent with a kernel and a datastore, a
//! simulation with made-up ones. What fails on the way up is taken down again before the runtime
//! hears of it.

use crate::failure::{Code, Failure};
use crate::life::{Owed, Phase, Record, Step, Target};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Write the record into the journal, and tell [`Course::written`].
    Write,
    /// Perform a step, and tell [`Course::performed`].
    Perform(Step),
    /// Give the answer to whoever asked, and tell [`Course::answered`].
    Answer,
    /// Remove the record from the journal, and tell [`Course::forgotten`].
    Forget,
    /// That is all.
    End(Result<(), Failure>),
}

/// What came of a step that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Performed {
    /// It is done.
    Done,
    /// It is done, and has made the record this.
    Made(Box<Record>),
    /// The datastore does not answer.
    Away(Outage),
}

/// Why an ADD cannot have the datastore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// What the runtime is told if nothing else helps.
    pub failure: Failure,
    /// Whether a request was sent, whatever became of it.
    pub was_tried: bool,
}

/// One call on its way.
#[derive(Clone, Debug)]
pub struct Course {
    record: Record,
    /// As the journal has it.
    written: Option<Record>,
    target: Target,
    /// Whether an agent will finish what has to be left undone.
    has_agent: bool,
    next: Act,
    outage: Option<Outage>,
    /// Why what was made is taken back.
    cause: Option<Failure>,
    /// Why the journal is behind.
    unwritten: Option<Failure>,
}

impl Course {
    /// An ADD: the record is not in the journal yet.
    pub fn up(record: Record, has_agent: bool) -> Self {
        Self::new(record, None, Target::Up, has_agent, Act::Write)
    }

    /// The end of a sandbox whose record may be in the journal.
    pub fn down(record: Record, has_agent: bool) -> Self {
        let written = Some(record.clone());
        let mut course = Self::new(record, written, Target::Gone, has_agent, Act::Write);
        course.decide();
        course
    }

    fn new(
        record: Record,
        written: Option<Record>,
        target: Target,
        has_agent: bool,
        next: Act,
    ) -> Self {
        let (outage, cause, unwritten) = (None, None, None);
        Self { record, written, target, has_agent, next, outage, cause, unwritten }
    }

    /// What to do next.
    pub fn next(&self) -> Act {
        self.next.clone()
    }

    /// What is known of the sandbox.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Whether the sandbox is on its way up.
    pub fn is_up(&self) -> bool {
        self.target == Target::Up
    }

    /// Why addresses of the reserve are needed.
    pub fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// The journal was written, or not.
    pub fn written(&mut self, written: Result<(), Failure>) {
        match (written, self.target) {
            (Ok(()), _) => {
                self.written = Some(self.record.clone());
                self.unwritten = None;
                self.decide();
            }
            (Err(failure), Target::Up) => self.fail(failure),
            // A full disk keeps nobody from leaving: who leaves for good needs no record. Only
            // what cannot be finished now has to be written down, or asked for again.
            (Err(failure), Target::Gone) => {
                self.unwritten = Some(failure);
                self.decide();
            }
        }
    }

    /// The step that was due went well, or not.
    pub fn performed(&mut self, performed: Result<Performed, Failure>) {
        let Act::Perform(step) = self.next else { return };
        match (step, performed) {
            (_, Ok(Performed::Away(outage))) if self.has_agent => {
                self.outage = Some(outage);
                self.next = Act::Perform(Step::Take);
            }
            (_, Ok(Performed::Away(outage))) => self.fail(outage.failure),
            // The reserve hands an address out by the journal's saying so.
            (Step::Take, Ok(Performed::Made(record))) => {
                self.record = *record;
                self.written = Some(self.record.clone());
                self.decide();
            }
            (_, Ok(Performed::Made(record))) => {
                self.record = *record;
                self.pass(step);
            }
            (_, Ok(Performed::Done)) => self.pass(step),
            (Step::Release, Err(failure)) => {
                let failure = self.unwritten.take().unwrap_or(failure);
                self.fail(failure);
            }
            (_, Err(failure)) => self.fail(failure),
        }
    }

    /// Somebody took the answer, or nobody was there to take it.
    pub fn answered(&mut self, is_taken: bool) {
        match is_taken {
            true => self.next = Act::End(Ok(())),
            false => {
                let identity = &self.record.identity;
                self.fail(Failure::plugin(format!("{identity}: its caller is gone; taken back")));
            }
        }
    }

    /// The record was removed from the journal, or not.
    pub fn forgotten(&mut self, forgotten: Result<(), Failure>) {
        self.next = Act::End(self.cause.take().map_or(forgotten, Err));
    }

    /// Nobody needs what is being made: a DEL waits.
    pub fn give_up(&mut self) {
        let message = format!("{}: a DEL came before its ADD was done", self.record.identity);
        self.fail(Failure::new(Code::TryAgainLater, message));
    }

    fn pass(&mut self, step: Step) {
        match self.record.after(step) {
            Some(phase) => {
                self.record.phase = phase;
                self.next = Act::Write;
            }
            None => self.next = Act::Forget,
        }
    }

    fn fail(&mut self, failure: Failure) {
        if self.target == Target::Gone {
            self.next = Act::End(Err(self.cause.take().unwrap_or(failure)));
            return;
        }
        // Without a record nothing was begun.
        let Some(written) = self.written.clone() else {
            self.next = Act::End(Err(failure));
            return;
        };
        self.record = written;
        // If nothing was asked of the datastore, nothing has to be taken back from it.
        let was_asked = self.outage.as_ref().is_none_or(|outage| outage.was_tried);
        if !was_asked && self.record.phase == Phase::Claiming {
            self.record.owed = Some(Owed::default());
        }
        self.cause = Some(failure);
        self.target = Target::Gone;
        self.decide();
    }

    fn decide(&mut self) {
        self.next = match self.record.next(self.target) {
            Some(Step::Claim) if self.record.owed.is_some() => {
                self.outage = Some(Outage::of_an_earlier_one());
                Act::Perform(Step::Take)
            }
            // What the datastore never heard of needs no release; its addresses are in the reserve.
            Some(Step::Release) if self.record.owed.as_ref().is_some_and(|it| !it.was_tried) => {
                Act::Forget
            }
            Some(step) => Act::Perform(step),
            None => Act::Answer,
        };
    }
}

impl Outage {
    fn of_an_earlier_one() -> Self {
        let why = "the datastore was not told of its earlier ADD yet";
        Self { failure: Failure::new(Code::TryAgainLater, why), was_tried: true }
    }
}
