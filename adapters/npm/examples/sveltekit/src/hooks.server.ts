import { sequence } from "@sveltejs/kit/hooks";
import * as env from "$app/env/private";
import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/sveltekit";

const options = { platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } } as const;
const tidegate = Tidegate.fromEnv(options, env);

export const handle = sequence(
  limit(tidegate, { check: (_request, event) => (event.url.pathname === "/" ? null : {}) }),
  ({ event, resolve }) => resolve(event),
);
