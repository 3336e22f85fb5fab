import { ran } from "../../gate";

export default defineEventHandler(() => (ran("login"), "login"));
