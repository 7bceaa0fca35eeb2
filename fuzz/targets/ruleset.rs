//! Datagrams about the nftables ruleset: every one is readable or refused, and a rule that was read
//! can be written.

#![no_main]

use kernel::nft::{Batch, Object, decode_objects};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    let Ok(objects) = decode_objects(datagram) else { return };
    let mut batch = Batch::new();
    for object in objects {
        match object {
            Object::Table(table) => batch.add_table(&table),
            Object::Chain(table, chain) => batch.add_chain(&table, &chain),
            Object::Rule(listed) => batch.add_rule(&listed.table, &listed.rule),
            Object::Set(table, set) => batch.add_set(&table, &set),
            Object::Elements(_) | Object::Counter(..) => {}
        }
    }
});
