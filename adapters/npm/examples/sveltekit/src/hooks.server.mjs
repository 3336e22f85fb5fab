import { limit } from "@tidegate/edge/sveltekit";
import { tidegate } from "../../tidegate.mjs";

export const handle = limit(tidegate("direct"), { check: (request) => (request.url.includes("/api/") ? {} : null) });
