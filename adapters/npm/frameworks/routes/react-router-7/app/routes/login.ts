import { ran } from "../../gate";

export const loader = (): Response => (ran("login"), new Response("login"));
