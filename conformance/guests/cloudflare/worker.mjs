// What worker-build exports is behind proxies, which the platform makes and looks through for each request: half as long as a
// decision from a lease takes. Here is what they stand before.

import Guest from "./build/index.js";

export * from "./build/index.js";

const { fetch } = Guest.prototype;

export default { fetch: (request, env, ctx) => fetch.call({ env, ctx }, request) };
