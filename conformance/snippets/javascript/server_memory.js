import { Tidegate } from "@tidegate/edge/memory";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy });
