// The parts of a `RateLimiter`: a bundler leaves out those that an application does not name.

export { type AddressOptions, clientAddress, type Sender } from "./client_address.js";
export type { LoadedPolicy, LoadedQuota } from "./loaded_policy.js";
export { fixedWindow, leakyBucket, penalty, type QuotaOptions, slidingLog, slidingWindow, tokenBucket } from "./quotas.js";
