// What happens to strangers and to denied keys when a limiter in memory has counts of as many keys as it may.
//
//   node bench/full.mjs [KEYS]

import { Tidegate } from "@tidegate/edge/memory";

const maxKeys = Number(process.argv[2] ?? 1_000_000);
const [LIMIT, STRANGERS, now] = [10, 10_000, 1_800_000_000_000];

for (const whenFull of ["evict", "share", "deny"]) {
  for (const usedUp of [0, 0.5, 0.9]) {
    const policy = { name: `${whenFull}-${usedUp}`, quotas: [{ fixedWindow: { limit: LIMIT, windowMs: 3_600_000 } }] };
    const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy, maxKeys, whenFull, onError: () => {} });
    const admits = (key) => tidegate.decide(key, { now }).allowed;
    const denied = Math.round(maxKeys * usedUp);
    for (let nth = 0; nth < denied; nth++) tidegate.decide(`denied:${nth}`, { now, cost: LIMIT });
    // As many further addresses as there is room for keys, after those that fill it.
    const before = process.cpuUsage();
    for (let nth = denied; nth < 2 * maxKeys; nth++) admits(`address:${nth}`);
    const { user, system } = process.cpuUsage(before);
    const counts = { strangers: 0, reset: 0 };
    for (let nth = 0; nth < denied; nth++) counts.reset += Number(tidegate.decide(`denied:${nth}`, { now, cost: LIMIT }).allowed);
    for (let nth = 0; nth < STRANGERS; nth++) counts.strangers += Number(admits(`stranger:${nth}`));
    const ns = Math.round(((user + system) * 1_000) / (2 * maxKeys - denied));
    console.log(`${whenFull}, ${usedUp * 100} % used up: ${counts.strangers} of ${STRANGERS} strangers, ${counts.reset} of ${denied} reset, ${ns} ns`);
  }
}
