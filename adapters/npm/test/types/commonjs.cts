// An application in CommonJS. Node.js and TypeScript can `require` ES modules.

import edge = require("@tidegate/edge/memory");

export const tidegate = new edge.Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 / s"] } });
// @ts-expect-error
new edge.Tidegate({ platform: "direct" });
