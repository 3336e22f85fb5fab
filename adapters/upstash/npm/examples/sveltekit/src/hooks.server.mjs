import { limit } from "@tollgate-rs/edge/sveltekit";
import { tollgate } from "../../tollgate.mjs";

export const handle = limit(tollgate("direct"), { check: (request) => (request.url.includes("/api/") ? {} : null) });
