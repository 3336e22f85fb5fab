// What worker-build exports is a class, which the platform makes and looks through for each request: as long as a decision from
// a lease takes. Made here, it takes a third of that.

import Guest from "./build/index.js";

export * from "./build/index.js";

export default { fetch: (request, env, context) => new Guest(context, env).fetch(request) };
