//! What a rule of another program asks of a packet.

use kernel::nft::expression::{Comparison, Ct, LookupResult, Meta, ct_state};
use kernel::nft::{Element, ElementValue, Expression, Key, Register, Rule, Source, Verdict};

/// A question of a rule.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) source: Source,
    pub(super) mask: Option<Mask>,
    pub(super) ask: Ask,
}

/// What is done to a value before it is compared.
#[derive(Clone, Debug)]
pub(super) struct Mask {
    mask: Vec<u8>,
    xor: Vec<u8>,
}

/// Whether a value is one of these.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// Whether it is to be none of them.
    pub(super) is_inverted: bool,
    /// From the first to the last, which may be shorter than the value: then its start counts.
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Ask {
    fn one_of(keys: impl IntoIterator<Item = Key>, is_inverted: bool) -> Self {
        let ranges = keys.into_iter().filter_map(|key| match key {
            Key::One(one) => Some((one.clone(), one)),
            Key::Range(first, last) => Some((first, last)),
            Key::Rest => None,
        });
        Self { is_inverted, ranges: ranges.collect() }
    }

    /// Whether a value is what is asked for.
    pub(super) fn takes(&self, value: &[u8], mask: Option<&Mask>) -> bool {
        let value = mask.map_or_else(|| value.to_vec(), |mask| mask.applied(value));
        let is_in = |(first, last): &(Vec<u8>, Vec<u8>)| {
            let start = &value[..first.len().min(value.len())];
            first.as_slice() <= start && start <= last.as_slice()
        };
        self.ranges.iter().any(is_in) != self.is_inverted
    }

    /// As ranges of addresses of so many bytes. None if a mask is no prefix.
    pub(super) fn ranges(&self, mask: Option<&[u8]>, n_bytes: u32) -> Option<Vec<(u128, u128)>> {
        let number = |bytes: &[u8], fill: u8| -> u128 {
            let filled =
                bytes.iter().copied().chain(std::iter::repeat(fill)).take(n_bytes as usize);
            filled.fold(0, |all, byte| (all << 8) | u128::from(byte))
        };
        let free = match mask {
            None => 0,
            Some(mask) => !number(mask, 0) & (u128::MAX >> (128 - 8 * n_bytes)),
        };
        let is_prefix = free & free.wrapping_add(1) == 0;
        let of = |(first, last): &(Vec<u8>, Vec<u8>)| (number(first, 0), number(last, 0xff) | free);
        is_prefix.then(|| self.ranges.iter().map(of).collect())
    }

    /// Both halves of the one value that is asked for.
    pub(super) fn halves(&self, at: u32) -> Option<(Self, Self)> {
        let [(first, last)] = self.ranges.as_slice() else { return None };
        if self.is_inverted || first != last {
            return None;
        }
        let (left, right) = first.split_at_checked(at as usize)?;
        let half = |it: &[u8]| Self { is_inverted: false, ranges: vec![(it.into(), it.into())] };
        Some((half(left), half(right)))
    }
}

impl Mask {
    fn applied(&self, value: &[u8]) -> Vec<u8> {
        let bits = self.mask.iter().zip(&self.xor);
        value.iter().zip(bits).map(|(byte, (mask, xor))| (byte & mask) ^ xor).collect()
    }

    /// The bits that it keeps, unless it flips some.
    pub(super) fn as_plain(&self) -> Option<&[u8]> {
        self.xor.iter().all(|it| *it == 0).then_some(&self.mask)
    }
}

/// What becomes of a packet that a rule takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Accepted,
    Lost,
    Jumps(String),
    GoesTo(String),
    Returns,
}

/// Questions, and what becomes of packets for which the answer to all of them is yes.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) questions: Vec<Question>,
    pub(super) fate: Fate,
}

/// The members of a set by its name; none if they cannot be read.
pub(super) type Members<'a> = dyn FnMut(&str) -> Option<Vec<Element>> + 'a;

/// What a rule does; nothing if it asks what nobody here can answer.
pub(super) fn branches(rule: &Rule, members: &mut Members<'_>) -> Vec<Branch> {
    let mut reader = Reader::default();
    for expression in &rule.expressions {
        match reader.read(expression, members) {
            Read::On => {}
            Read::Unsure => return Vec::new(),
            Read::Ends(branches) => return branches,
        }
    }
    Vec::new()
}

enum Read {
    On,
    Unsure,
    Ends(Vec<Branch>),
}

#[derive(Default)]
struct Reader {
    /// What is in registers.
    loaded: Vec<(Register, Source, Option<Mask>)>,
    questions: Vec<Question>,
}

impl Reader {
    fn read(&mut self, expression: &Expression, members: &mut Members<'_>) -> Read {
        match expression {
            Expression::Load { source, register } => {
                self.forget(*register);
                self.loaded.push((*register, *source, None));
                Read::On
            }
            Expression::Bitwise { register, mask, xor } => self.masked(*register, mask, xor),
            Expression::Compare { register, operator, value } => {
                let key = Key::One(value.clone());
                match operator {
                    Comparison::Equal => self.asked(*register, [key], false),
                    Comparison::NotEqual => self.asked(*register, [key], true),
                    _ => Read::Unsure,
                }
            }
            Expression::Range { register, is_inverted, first, last } => {
                let key = Key::range(first.clone(), last.clone());
                self.asked(*register, [key], *is_inverted)
            }
            Expression::Lookup { register, set, result } => {
                let Some(elements) = members(set) else { return Read::Unsure };
                match result {
                    LookupResult::Member { is_inverted } => {
                        let keys = elements.into_iter().map(|it| it.key);
                        self.asked(*register, keys, *is_inverted)
                    }
                    LookupResult::Verdict => self.dispatched(*register, elements),
                    LookupResult::Value(_) => Read::Unsure,
                }
            }
            Expression::Verdict(verdict) => self.ends(fate(verdict)),
            Expression::Reject(_) => self.ends(Some(Fate::Lost)),
            Expression::Target(name) if name == "REJECT" => self.ends(Some(Fate::Lost)),
            Expression::Masquerade { .. } | Expression::Nat { .. } => {
                self.ends(Some(Fate::Accepted))
            }
            Expression::Match { name, info } => self.matched(name, info),
            Expression::Constant { register, .. } => {
                self.forget(*register);
                Read::On
            }
            Expression::Counter { .. }
            | Expression::NamedCounter(_)
            | Expression::Store { .. }
            | Expression::Log { .. }
            | Expression::NoTrack
            | Expression::Target(_) => Read::On,
            Expression::Limit { .. } | Expression::Update { .. } | Expression::Unknown(_) => {
                Read::Unsure
            }
        }
    }

    fn forget(&mut self, register: Register) {
        self.loaded.retain(|(known, ..)| *known != register);
    }

    fn masked(&mut self, register: Register, mask: &[u8], xor: &[u8]) -> Read {
        let known = self.loaded.iter_mut().find(|(known, ..)| *known == register);
        let Some((_, _, slot @ None)) = known else { return Read::Unsure };
        *slot = Some(Mask { mask: mask.to_vec(), xor: xor.to_vec() });
        Read::On
    }

    /// None about several values side by side.
    fn question(&self, register: Register, ask: Ask) -> Option<Question> {
        let (_, source, mask) = self.loaded.iter().find(|(known, ..)| *known == register)?;
        let n_bytes = match source {
            Source::Payload { len, .. } => *len as usize,
            Source::Meta(Meta::InputName | Meta::OutputName) => 16,
            _ => 4,
        };
        let is_single = ask.ranges.iter().all(|(first, _)| first.len() <= n_bytes);
        is_single.then(|| Question { source: *source, mask: mask.clone(), ask })
    }

    fn asked(
        &mut self,
        register: Register,
        keys: impl IntoIterator<Item = Key>,
        is_inverted: bool,
    ) -> Read {
        let keys: Vec<Key> = keys.into_iter().collect();
        // What no other member covers depends on all of them.
        let question = match keys.contains(&Key::Rest) {
            true => None,
            false => self.question(register, Ask::one_of(keys, is_inverted)),
        };
        match question {
            Some(question) => {
                self.questions.push(question);
                Read::On
            }
            None => Read::Unsure,
        }
    }

    fn ends(&mut self, fate: Option<Fate>) -> Read {
        let questions = std::mem::take(&mut self.questions);
        Read::Ends(fate.map(|fate| Branch { questions, fate }).into_iter().collect())
    }

    /// A map of verdicts is a branch for each of its keys.
    fn dispatched(&mut self, register: Register, elements: Vec<Element>) -> Read {
        let questions = std::mem::take(&mut self.questions);
        let branch = |element: Element| {
            let Some(ElementValue::Verdict(verdict)) = element.value else { return None };
            let is_rest = element.key == Key::Rest;
            let ask = Ask::one_of([element.key], false);
            let question = self.question(register, ask).filter(|_| !is_rest)?;
            let questions = questions.iter().cloned().chain([question]).collect();
            Some(Branch { questions, fate: fate(&verdict)? })
        };
        Read::Ends(elements.into_iter().filter_map(branch).collect())
    }

    /// Of iptables' own matches only these are looked into: a comment asks nothing.
    fn matched(&mut self, name: &str, info: &[u8]) -> Read {
        match name {
            "comment" => Read::On,
            "conntrack" => {
                let Some(states) = conntrack_states(info) else { return Read::Unsure };
                let source = Source::Ct(Ct::State);
                let mask = Mask { mask: states.to_ne_bytes().to_vec(), xor: vec![0; 4] };
                let ask = Ask::one_of([Key::One(vec![0; 4])], true);
                self.questions.push(Question { source, mask: Some(mask), ask });
                Read::On
            }
            _ => Read::Unsure,
        }
    }
}

fn fate(verdict: &Verdict) -> Option<Fate> {
    Some(match verdict {
        Verdict::Accept => Fate::Accepted,
        Verdict::Drop => Fate::Lost,
        Verdict::Jump(chain) => Fate::Jumps(chain.clone()),
        Verdict::Goto(chain) => Fate::GoesTo(chain.clone()),
        Verdict::Return => Fate::Returns,
        Verdict::Continue => return None,
    })
}

/// The states that the match `conntrack` of iptables asks for, if it asks for nothing else. In
/// `struct xt_conntrack_mtinfo2` and its successor these numbers follow on eight addresses, two
/// times, a protocol and four ports; the bits of states are those of nftables.
fn conntrack_states(info: &[u8]) -> Option<u32> {
    const ASKS_STATE: u16 = 1;
    let number = |at: usize| -> Option<u16> {
        Some(u16::from_ne_bytes(info.get(at..at + 2)?.try_into().ok()?))
    };
    let (asked, inverted, states) = (number(146)?, number(148)?, u32::from(number(150)?));
    let all = ct_state::INVALID | ct_state::ESTABLISHED | ct_state::RELATED | ct_state::NEW;
    match (asked, inverted & ASKS_STATE) {
        (ASKS_STATE, 0) => Some(states),
        (ASKS_STATE, _) => Some(all & !states),
        _ => None,
    }
}
