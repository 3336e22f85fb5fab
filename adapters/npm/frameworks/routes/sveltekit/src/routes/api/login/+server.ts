import { ran } from "../../../../gate";

export const GET = (): Response => (ran("login"), new Response("login"));
