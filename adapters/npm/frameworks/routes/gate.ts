// A gate with a rule for each route of the test, and how a route says that it ran.

import { appendFileSync } from "node:fs";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/memory";

const routes = { account: "/account", item: "/shop/{item}", login: "/api/login", action: "/_actions/buy" };
const limits = Object.keys(routes).map((name) => [name, { quotas: [{ algorithm: "fixed_window", limit: 1_000_000_000, window_ms: 86_400_000, name }] }]);
const rules = Object.entries(routes).map(([name, path]) => ({ path, limits: [name] }));

export const gate = Gate.fromRules(
  { limits: Object.fromEntries(limits), rules },
  { platform: "direct", stores: { default: (limit) => new Tidegate(limit) } },
);

export const ran = (route: keyof typeof routes): void => appendFileSync("ran.txt", `${route}\n`);
