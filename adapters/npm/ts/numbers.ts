/** The places of a decision's numbers, as in `core/src/decision/numbers.rs`. From `QUOTAS` on, each quota has `EACH`. */
export const [STATUS, BINDING, WAIT, DELAY, AT, ORIGIN, REPLAY, QUOTAS, EACH] = [0, 1, 2, 3, 4, 5, 6, 7, 3] as const;

/** In place of a number that is not known. */
export const UNKNOWN = -1;

/** A status: denied. */
export const DENIED = 1;

/** An origin: the deny cache. */
export const FROM_DENY_CACHE = 1;
