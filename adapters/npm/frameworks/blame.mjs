// Whose failure it is when an app does not work with the newest versions.

/**
 * `unavailable` if the app fails at the same step without the package, and would pass it with the locked versions: then a new version of
 * another package broke it. Anything else is a failure of ours. `failsAt` tries the app without the package, up to the step, and resolves to the
 * step at which it fails, or to nothing.
 */
export async function blame(step, failsAt) {
  const newest = await failsAt({ newest: true });
  if (newest === undefined) return { result: "FAILED", why: "without the package, it works with the same versions" };
  if (newest !== step) return { result: "FAILED", why: `without the package, it fails elsewhere (${newest})` };
  const locked = await failsAt({ newest: false });
  if (locked !== undefined) return { result: "FAILED", why: `without the package, it fails with the locked versions, too (${locked})` };
  return { result: "unavailable", why: "without the package, it fails at the same step" };
}

/** The exit code: rows that are unavailable are no failure, but some row must have passed. */
export const exitCode = (results) => (results.includes("FAILED") || !results.includes("passed") ? 1 : 0);
