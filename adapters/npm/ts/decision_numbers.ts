/** The places of a decision's numbers, as in `src/numbers.rs`. From `QUOTAS` on, each quota has `EACH`. */
export const [STATUS, BINDING, WAIT, DELAY, AT, ORIGIN, REPLAY, PAID, QUOTAS, EACH] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 3] as const;

/** In place of a number that is not known. */
export const UNKNOWN = -1;

/** The statuses. */
export const STATUSES = ["allowed", "denied", "never_admissible"] as const;
export const [ALLOWED, DENIED, NEVER_ADMISSIBLE] = [0, 1, 2] as const;

/** Where decisions are made. */
export const ORIGINS = ["store", "deny_cache", "fallback", "near", "lease"] as const;
export const [FROM_STORE, FROM_DENY_CACHE, FROM_FALLBACK, FROM_NEAR, FROM_LEASE] = [0, 1, 2, 3, 4] as const;
