export const limit = () => ({ event, resolve }) => resolve(event);
