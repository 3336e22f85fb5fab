/** Whether the platform lets a request of the key through, having counted it. */
export async function limit(binding, key) {
  return (await binding.limit({ key })).success;
}
