// What every store exports beside its `Tidegate`.

export type { Keys } from "./core/key.js";
export { type ErrorKind, TidegateError } from "./error.js";
export { type CheckOptions, Limiter, type LimitOptions } from "./limiter.js";
export type { LoadedPolicy, LoadedQuota } from "./loaded_policy.js";
export type { ErrorEvent, Identity, Operation, Options, Platform } from "./options.js";
export type { Algorithm, Bucket, Policy, Quota, Window } from "./policy.js";
export { type Charge, type QuotaStatus, Verdict } from "./verdict.js";
