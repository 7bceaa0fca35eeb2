//! Expressions as netlink attributes, written and read.

use super::{
    COMPARISONS, Ct, Expression, FibResult, Header, LookupResult, Meta, NatKind, Register,
    Rejection, Source, Target, VERDICT_REGISTER, Value, decode_bytes, decode_value, nat_flags,
    put_value,
};
use crate::table::OBJECT_COUNTER;
use crate::wire::{self, Malformed, Writer};

const NAME: u16 = 1;
const VALUES: u16 = 2;
/// A key is added if it is not in the set, and renewed if it is.
const DYNAMIC_UPDATE: u32 = 1;
/// The flag of a masquerade that has ports.
const NAT_PORTS_GIVEN: u32 = 1 << 1;
/// The kernel adds flags of its own that say which values are given.
const NAT_FLAGS_OURS: u32 = nat_flags::RANDOM | nat_flags::PERSISTENT | nat_flags::RANDOM_FULLY;

impl Expression {
    /// Writes it as an element of a list.
    pub fn encode(&self, writer: &mut Writer) {
        writer.text(NAME, self.name());
        writer.nest(VALUES, |values| match self {
            Self::Load { source, register } => encode_load(values, source, *register),
            Self::Store { target: Target::Meta(meta), register } => {
                values.u32_be(2, meta.code());
                values.u32_be(3, register.code());
            }
            Self::Store { target: Target::Ct(ct), register } => {
                values.u32_be(2, ct.code());
                values.u32_be(4, register.code());
            }
            Self::Lookup { register, set, result } => {
                values.text(1, set);
                values.u32_be(2, register.code());
                match result {
                    LookupResult::Member { is_inverted: false } => {}
                    LookupResult::Member { is_inverted: true } => values.u32_be(5, 1),
                    LookupResult::Verdict => values.u32_be(3, VERDICT_REGISTER),
                    LookupResult::Value(register) => values.u32_be(3, register.code()),
                }
            }
            Self::Update { register, set, step } => {
                values.text(1, set);
                values.u32_be(3, DYNAMIC_UPDATE);
                values.u32_be(4, register.code());
                values.nest(7, |one| step.encode(one));
            }
            Self::Constant { register, value } => {
                values.u32_be(1, register.code());
                put_value(values, 2, value);
            }
            Self::Verdict(verdict) => {
                values.u32_be(1, VERDICT_REGISTER);
                verdict.encode(2, values);
            }
            Self::Compare { .. } | Self::Range { .. } | Self::Bitwise { .. } => {
                self.encode_arithmetic(values);
            }
            _ => self.encode_effect(values),
        });
    }

    fn encode_arithmetic(&self, values: &mut Writer) {
        match self {
            Self::Compare { register, operator, value } => {
                let code = COMPARISONS.iter().position(|one| one == operator).unwrap_or(0);
                values.u32_be(1, register.code());
                values.u32_be(2, u32::try_from(code).unwrap_or(0));
                put_value(values, 3, value);
            }
            Self::Range { register, is_inverted, first, last } => {
                values.u32_be(1, register.code());
                values.u32_be(2, u32::from(*is_inverted));
                put_value(values, 3, first);
                put_value(values, 4, last);
            }
            Self::Bitwise { register, mask, xor } => {
                values.u32_be(1, register.code());
                values.u32_be(2, register.code());
                values.u32_be(3, u32::try_from(mask.len()).unwrap_or(u32::MAX));
                put_value(values, 4, mask);
                put_value(values, 5, xor);
            }
            _ => {}
        }
    }

    fn encode_effect(&self, values: &mut Writer) {
        match self {
            Self::Counter { packets, bytes } => {
                values.u64_be(1, *bytes);
                values.u64_be(2, *packets);
            }
            Self::NamedCounter(name) => {
                values.u32_be(1, OBJECT_COUNTER);
                values.text(2, name);
            }
            Self::Limit { rate, per_seconds, burst, is_inverted } => {
                values.u64_be(1, *rate);
                values.u64_be(2, *per_seconds);
                values.u32_be(3, *burst);
                values.u32_be(4, 0);
                values.u32_be(5, u32::from(*is_inverted));
            }
            Self::Log { group, prefix, snap_len } => {
                if let Some(group) = group {
                    values.u16_be(1, *group);
                }
                // Said to be 0 it would mean nothing at all.
                if group.is_some() && *snap_len > 0 {
                    values.u32_be(3, *snap_len);
                }
                if !prefix.is_empty() {
                    values.text(2, prefix);
                }
            }
            Self::Masquerade { flags, ports } => {
                // Without this one the kernel takes the ports and does not look at them.
                let given = if ports.is_some() { NAT_PORTS_GIVEN } else { 0 };
                values.u32_be(1, *flags | given);
                if let Some((first, last)) = ports {
                    values.u32_be(2, first.code());
                    values.u32_be(3, last.code());
                }
            }
            Self::Nat { kind, is_ipv6, address, port, last_port, flags } => {
                values.u32_be(1, u32::from(*kind == NatKind::Destination));
                values.u32_be(2, if *is_ipv6 { 10 } else { 2 });
                for (at, register) in [(3, address), (5, port), (6, last_port)] {
                    if let Some(register) = register {
                        values.u32_be(at, register.code());
                    }
                }
                if *flags != 0 {
                    values.u32_be(7, *flags);
                }
            }
            Self::Reject(rejection) => {
                let (kind, code) = match rejection {
                    Rejection::IcmpOfFamily(code) => (0, *code),
                    Rejection::TcpReset => (1, 0),
                    Rejection::Icmp(code) => (2, *code),
                };
                values.u32_be(1, kind);
                values.u8(2, code);
            }
            Self::Match { name, info } => {
                values.text(1, name);
                values.attribute(3, info);
            }
            Self::Target(name) => values.text(1, name),
            _ => {}
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Load { source: Source::Payload { .. }, .. } => "payload",
            Self::Load { source: Source::Meta(_), .. }
            | Self::Store { target: Target::Meta(_), .. } => "meta",
            Self::Load { source: Source::Ct(_), .. }
            | Self::Store { target: Target::Ct(_), .. } => "ct",
            Self::Load { source: Source::Fib { .. }, .. } => "fib",
            Self::Compare { .. } => "cmp",
            Self::Range { .. } => "range",
            Self::Bitwise { .. } => "bitwise",
            Self::Lookup { .. } => "lookup",
            Self::Constant { .. } | Self::Verdict(_) => "immediate",
            Self::Counter { .. } => "counter",
            Self::NamedCounter(_) => "objref",
            Self::Limit { .. } => "limit",
            Self::Update { .. } => "dynset",
            Self::Log { .. } => "log",
            Self::Masquerade { .. } => "masq",
            Self::Nat { .. } => "nat",
            Self::Reject(_) => "reject",
            Self::NoTrack => "notrack",
            Self::Match { .. } => "match",
            Self::Target(_) => "target",
            Self::Unknown(name) => name,
        }
    }

    /// Reads one expression; what we do not make keeps its name only.
    pub fn decode(attributes: &[u8]) -> Result<Self, Malformed> {
        let (name, values) = parts(attributes)?;
        let values = Values::read(values)?;
        let read = match name.as_str() {
            "payload" | "meta" | "ct" | "fib" => decode_load(&name, &values)?,
            "cmp" | "range" | "bitwise" => decode_arithmetic(&name, &values)?,
            "lookup" => Some(decode_lookup(&values)?),
            "immediate" => match decode_value(values.need(2)?)? {
                Value::Verdict(verdict) => Some(Self::Verdict(verdict)),
                Value::Bytes(value) => {
                    Some(Self::Constant { register: values.register(1)?, value })
                }
            },
            _ => decode_effect(&name, &values)?,
        };
        Ok(read.unwrap_or(Self::Unknown(name)))
    }
}

/// The name of an expression, and its attributes.
fn parts(attributes: &[u8]) -> Result<(String, &[u8]), Malformed> {
    let (mut name, mut values): (String, &[u8]) = (String::new(), &[]);
    for attribute in wire::attributes(attributes) {
        match attribute? {
            (NAME, value) => name = wire::read_text(value),
            (VALUES, value) => values = value,
            _ => {}
        }
    }
    Ok((name, values))
}

fn encode_load(values: &mut Writer, source: &Source, register: Register) {
    match source {
        Source::Payload { header, offset, len } => {
            let base = match header {
                Header::Link => 0,
                Header::Network => 1,
                Header::Transport => 2,
            };
            values.u32_be(1, register.code());
            values.u32_be(2, base);
            values.u32_be(3, *offset);
            values.u32_be(4, *len);
        }
        Source::Meta(meta) => {
            values.u32_be(1, register.code());
            values.u32_be(2, meta.code());
        }
        Source::Ct(ct) => {
            values.u32_be(1, register.code());
            values.u32_be(2, ct.code());
        }
        Source::Fib { flags, result } => {
            let result = match result {
                FibResult::OutputIndex => 1,
                FibResult::OutputName => 2,
                FibResult::AddressKind => 3,
            };
            values.u32_be(1, register.code());
            values.u32_be(2, result);
            values.u32_be(3, *flags);
        }
    }
}

/// The attributes of one expression by their number; the last of a kind counts.
struct Values<'a>([Option<&'a [u8]>; 12]);

impl<'a> Values<'a> {
    fn read(attributes: &'a [u8]) -> Result<Self, Malformed> {
        let mut values = [None; 12];
        for attribute in wire::attributes(attributes) {
            let (kind, value) = attribute?;
            if let Some(slot) = values.get_mut(usize::from(kind)) {
                *slot = Some(value);
            }
        }
        Ok(Self(values))
    }

    fn get(&self, kind: usize) -> Option<&'a [u8]> {
        self.0.get(kind).copied().flatten()
    }

    fn need(&self, kind: usize) -> Result<&'a [u8], Malformed> {
        self.get(kind).ok_or(Malformed("an expression lacks a value"))
    }

    fn u32(&self, kind: usize) -> Result<u32, Malformed> {
        wire::read_u32_be(self.need(kind)?)
    }

    /// 0 if it is absent.
    fn u32_or_0(&self, kind: usize) -> Result<u32, Malformed> {
        self.get(kind).map_or(Ok(0), wire::read_u32_be)
    }

    fn register(&self, kind: usize) -> Result<Register, Malformed> {
        Register::from_code(self.u32(kind)?)
    }

    fn register_if_any(&self, kind: usize) -> Result<Option<Register>, Malformed> {
        self.get(kind).map(|value| Register::from_code(wire::read_u32_be(value)?)).transpose()
    }
}

fn decode_load(name: &str, values: &Values<'_>) -> Result<Option<Expression>, Malformed> {
    let key = values.u32_or_0(2)?;
    let target = match name {
        "meta" => values
            .register_if_any(3)?
            .map(|register| (Target::Meta(Meta::from_code(key)), register)),
        "ct" => {
            values.register_if_any(4)?.map(|register| (Target::Ct(Ct::from_code(key)), register))
        }
        _ => None,
    };
    if let Some((target, register)) = target {
        return Ok(Some(Expression::Store { target, register }));
    }
    let source = match (name, key) {
        ("meta", _) => Source::Meta(Meta::from_code(key)),
        ("ct", _) => Source::Ct(Ct::from_code(key)),
        ("fib", 1..=3) => Source::Fib {
            flags: values.u32(3)?,
            result: match key {
                1 => FibResult::OutputIndex,
                2 => FibResult::OutputName,
                _ => FibResult::AddressKind,
            },
        },
        ("payload", 0..=2) => Source::Payload {
            header: match key {
                0 => Header::Link,
                1 => Header::Network,
                _ => Header::Transport,
            },
            offset: values.u32(3)?,
            len: values.u32(4)?,
        },
        _ => return Ok(None),
    };
    // Writing into the packet has a source register only.
    let register = values.register_if_any(1)?;
    Ok(register.map(|register| Expression::Load { source, register }))
}

fn decode_arithmetic(name: &str, values: &Values<'_>) -> Result<Option<Expression>, Malformed> {
    let register = values.register(1)?;
    let operator = values.u32_or_0(2)?;
    Ok(match name {
        "cmp" => {
            let operator = COMPARISONS.get(operator as usize).copied();
            let value = decode_bytes(values.need(3)?)?;
            operator.map(|operator| Expression::Compare { register, operator, value })
        }
        "range" => Some(Expression::Range {
            register,
            is_inverted: operator == 1,
            first: decode_bytes(values.need(3)?)?,
            last: decode_bytes(values.need(4)?)?,
        }),
        // Shifts, and results in another register, are not ours.
        _ if values.u32_or_0(6)? != 0 || values.register(2)? != register => None,
        _ => Some(Expression::Bitwise {
            register,
            mask: decode_bytes(values.need(4)?)?,
            xor: decode_bytes(values.need(5)?)?,
        }),
    })
}

fn decode_lookup(values: &Values<'_>) -> Result<Expression, Malformed> {
    let result = match values.get(3).map(wire::read_u32_be).transpose()? {
        None => LookupResult::Member { is_inverted: values.u32_or_0(5)? & 1 != 0 },
        Some(VERDICT_REGISTER) => LookupResult::Verdict,
        Some(code) => LookupResult::Value(Register::from_code(code)?),
    };
    let set = wire::read_text(values.need(1)?);
    Ok(Expression::Lookup { register: values.register(2)?, set, result })
}

/// What keeps something else than a limit with its keys is not ours; so no input nests deeper.
fn decode_update(values: &Values<'_>) -> Result<Option<Expression>, Malformed> {
    let Some(step) = values.get(7) else { return Ok(None) };
    let (name, inner) = parts(step)?;
    if values.u32_or_0(3)? != DYNAMIC_UPDATE || values.u32_or_0(9)? & 1 != 0 || name != "limit" {
        return Ok(None);
    }
    let (register, set) = (values.register(4)?, wire::read_text(values.need(1)?));
    let step = decode_effect(&name, &Values::read(inner)?)?;
    Ok(step.map(|step| Expression::Update { register, set, step: Box::new(step) }))
}

fn decode_effect(name: &str, values: &Values<'_>) -> Result<Option<Expression>, Malformed> {
    Ok(Some(match name {
        "counter" => Expression::Counter {
            bytes: wire::read_u64_be(values.need(1)?)?,
            packets: wire::read_u64_be(values.need(2)?)?,
        },
        "objref" if values.u32_or_0(1)? == OBJECT_COUNTER => {
            Expression::NamedCounter(wire::read_text(values.need(2)?))
        }
        "limit" if values.u32_or_0(4)? == 0 => Expression::Limit {
            rate: wire::read_u64_be(values.need(1)?)?,
            per_seconds: wire::read_u64_be(values.need(2)?)?,
            burst: values.u32_or_0(3)?,
            is_inverted: values.u32_or_0(5)? & 1 != 0,
        },
        "dynset" => return decode_update(values),
        "log" => Expression::Log {
            group: values.get(1).map(wire::read_u16_be).transpose()?,
            prefix: values.get(2).map(wire::read_text).unwrap_or_default(),
            snap_len: values.u32_or_0(3)?,
        },
        "masq" => Expression::Masquerade {
            flags: values.u32_or_0(1)? & NAT_FLAGS_OURS,
            ports: values.register_if_any(2)?.zip(values.register_if_any(3)?),
        },
        "nat" => Expression::Nat {
            kind: if values.u32(1)? == 0 { NatKind::Source } else { NatKind::Destination },
            is_ipv6: values.u32(2)? == 10,
            address: values.register_if_any(3)?,
            port: values.register_if_any(5)?,
            last_port: values
                .register_if_any(6)?
                // The kernel lists the one port also as the last.
                .filter(|last| values.register_if_any(5).ok().flatten() != Some(*last)),
            flags: values.u32_or_0(7)? & NAT_FLAGS_OURS,
        },
        "reject" => {
            let code = values.get(2).map_or(Ok(0), wire::read_u8)?;
            Expression::Reject(match values.u32(1)? {
                0 => Rejection::IcmpOfFamily(code),
                1 => Rejection::TcpReset,
                _ => Rejection::Icmp(code),
            })
        }
        "notrack" => Expression::NoTrack,
        "match" => Expression::Match {
            name: values.get(1).map(wire::read_text).unwrap_or_default(),
            info: values.get(3).unwrap_or_default().to_vec(),
        },
        "target" => Expression::Target(values.get(1).map(wire::read_text).unwrap_or_default()),
        _ => return Ok(None),
    }))
}

/// Packets and bytes of a counter.
pub fn decode_counter(attributes: &[u8]) -> Result<(u64, u64), Malformed> {
    let values = Values::read(attributes)?;
    Ok((wire::read_u64_be(values.need(2)?)?, wire::read_u64_be(values.need(1)?)?))
}
