import { limit } from "@tidegate/edge/netlify";
import { tidegate } from "../tidegate.mjs";

export default limit(tidegate("netlify"));
export const config = { path: "/api/*" };
