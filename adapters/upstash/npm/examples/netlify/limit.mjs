import { limit } from "@tollgate-rs/edge/netlify";
import { tollgate } from "../tollgate.mjs";

export default limit(tollgate("netlify"));
export const config = { path: "/api/*" };
