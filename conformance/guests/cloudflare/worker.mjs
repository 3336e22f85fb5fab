// worker-build exports a class behind proxies. The platform creates an instance and passes through the proxies for each
// request. Calling the method directly saves about 10 us. After a panic, wasm-bindgen creates a new instance by itself.

import Guest from "./build/index.js";

export * from "./build/index.js";

const { fetch } = Guest.prototype;

export default { fetch: (request, env, ctx) => fetch.call({ env, ctx }, request) };
