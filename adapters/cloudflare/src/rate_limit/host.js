/** Counts a request under the key, and returns whether the platform admits it. */
export async function limit(binding, key) {
  return (await binding.limit({ key })).success;
}
