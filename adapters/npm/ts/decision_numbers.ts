/** The places of a decision's numbers, as in `src/numbers.rs`. From `QUOTAS` on, each quota has `EACH`. */
export const STATUS = 0;
export const BINDING = 1;
export const WAIT = 2;
export const DELAY = 3;
export const AT = 4;
export const ORIGIN = 5;
export const REPLAY = 6;
export const PAID = 7;
export const QUOTAS = 8;
export const EACH = 3;

/** In place of a number that is not known. */
export const UNKNOWN = -1;

/** The statuses. */
export const STATUSES = ["allowed", "denied", "never_admissible"] as const;
export const ALLOWED = 0;
export const DENIED = 1;
export const NEVER_ADMISSIBLE = 2;

/** Where decisions are made. */
export const ORIGINS = ["store", "deny_cache", "fallback", "near", "lease"] as const;
export const FROM_STORE = 0;
export const FROM_DENY_CACHE = 1;
export const FROM_FALLBACK = 2;
export const FROM_NEAR = 3;
export const FROM_LEASE = 4;
