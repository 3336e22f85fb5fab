//! The comparison notices faults of the script.

use proptest::test_runner::RngSeed;
use tidegate_redis::wire::Script;

use super::hold;
use crate::support::Server;

#[test]
fn faults_of_the_lending_script_are_noticed() {
    let server = Server::start();
    let mut connection = server.connection();
    let (text, mut unnoticed) = (Script::Lending.text(false), Vec::new());
    for (from, to) in [
        // Reading.
        ("number < 1 or number > last + 0", "number < 1"),
        ("ends > MAX_INSTANT or ends < before", "ends < before"),
        ("ends > MAX_INSTANT or ends < before", "ends > MAX_INSTANT"),
        ("#loans > LOANS_MAX or", ""),
        ("borrowers <= SIXTEENTHS * (LOANS_MAX + 1)", "true"),
        // Settling.
        ("from < loan[3] and loan[3] <= to", "from <= loan[3] and loan[3] <= to"),
        ("from < loan[3] and loan[3] <= to", "from < loan[3] and loan[3] < to"),
        ("from < loan[3] and loan[3] <= to", "from < loan[3]"),
        ("max(drained, min(units * part.unit, MAX_UNITS))", "max(drained, 0)"),
        ("units = units - loan[2]\n", ""),
        ("since < loan[3] and loan[3] <= at", "loan[3] <= at"),
        ("part.used = max(part.used, lent(part.at, part.ends or part.at + part.unit))\n", ""),
        ("lent(part.at, part.ends or part.at + part.unit)", "lent(part.at, part.at + part.unit)"),
        ("matters = loan[3] > max(current, part.at)\n", "matters = loan[3] > max(current, part.at) + 1\n"),
        ("loans = kept\nend\n", "end\n"),
        ("part.previous = max(part.previous, lent(max(part.at - part.unit, 0), part.at))\n", ""),
        ("ceil(part.limit * part.unit / part.refill)", "0"),
        ("matters = loan[3] > start\n", "matters = loan[3] > start + 1\n"),
        ("matters = loan[3] > max(start - part.unit, 0)", "matters = loan[3] > start"),
        ("loan[3] > now + LIFETIME_MAX + MAX_SKEW", "false"),
        ("if mode ~= 'p' and", "if"),
        // Taking back.
        ("loan[1] == number", "loan[1] <= number"),
        ("table.remove(loans, place)\nchanged = true", "changed = true"),
        ("table.remove(loans, place)\nchanged = true", "table.remove(loans, place)"),
        ("unspent = min(unspent, units)\n", ""),
        ("format('%.0f', max(ends - 1, 0))", "format('%.0f', ends)"),
        ("kept = min(kept, units - unspent)", "kept = min(kept, units)"),
        ("ends > max(latest(), now) and", "ends > now and"),
        ("ends > max(latest(), now) and", "ends > latest() and"),
        // Lending.
        ("others >= LOANS_MAX", "others > LOANS_MAX"),
        ("SIXTEENTHS * (others + 1)", "SIXTEENTHS * others"),
        ("/ (2 * SIXTEENTHS)", "/ SIXTEENTHS"),
        ("changed = changed or borrowers ~= before\n", ""),
        ("ends = min(ends, part.ends or part.at + part.unit)\n", ""),
        ("ends = min(ends, part.ends or part.at + part.unit)\n", "ends = min(ends, part.at + part.unit)\n"),
        ("- part.used - weight, 0)", "- part.used, 0)"),
        ("part.limit + (part.carried or 0)", "part.limit"),
        ("left = min(left, room)", "left = room"),
        ("min(asked.within, WITHIN_MAX)", "asked.within"),
        ("min(asked.wanted, UNITS_MAX)", "asked.wanted"),
        ("max(wanted - kept, 0)", "wanted"),
        ("floor(left / (2 * shared_by))", "floor(left / shared_by)"),
        ("floor(left / (2 * shared_by))", "floor(left / 2)"),
        ("more <= most then", "more < most then"),
        ("2 * (most + kept) * within", "2 * most * within"),
        ("max(LIFE_MIN, floor(2 *", "max(LIFE_MIN, floor(3 *"),
        ("max(LIFE_MIN, floor(", "max(0, floor("),
        ("units == 0 or ends <= now or sub(ask('c', now_text, units), 1, 1) ~= 'a'", "units == 0 or ends <= now"),
        ("units == 0 or ends <= now or", "units == 0 or"),
        ("add(units + kept[1], max(ends, kept[2]))", "add(units + kept[1], ends)"),
        ("add(units + kept[1], max(ends, kept[2]))", "add(units, max(ends, kept[2]))"),
        ("or kept and add(kept[1], kept[2])", ""),
        ("verdict == 'a' and lend(asked, kept)", "lend(asked, kept)"),
        ("max(now * NUMBERS_PER_MS, last + 1), true", "last + 1, true"),
        ("max(now * NUMBERS_PER_MS, last + 1), true", "now * NUMBERS_PER_MS, true"),
        ("loans[place - 1][3] > ends", "loans[place - 1][3] >= ends"),
        ("min(asked.lifetime, LIFETIME_MAX)", "asked.lifetime"),
        ("granted[1], granted[2], granted[3]", "granted[1], granted[2], granted[3] + 1"),
        // Resetting.
        ("part.level = min(part.level, units * part.unit)\n", ""),
        ("part.used, part.previous = min(part.used, units), 0", "part.used = min(part.used, units)"),
        ("part.used, part.previous = min(part.used, units), 0", "part.previous = 0"),
        ("part.carried = part.carried and floor(part.refill / 1048576)\n", ""),
        ("if loan[3] > since then", "if true then"),
        // Writing.
        ("max(loans[#loans][3] - now, 0)", "0"),
        ("redis.call('SET', name, text, 'KEEPTTL')\n", "\n"),
        ("sub(answer, 1, #answer - #before) .. raw", "answer"),
    ] {
        assert!(text.contains(from), "{from} is not in lend.lua");
        if hold(&mut connection, &text.replacen(from, to, 1), 1_000, RngSeed::Fixed(1)).is_ok() {
            unnoticed.push((from, to));
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:#?}");
}
