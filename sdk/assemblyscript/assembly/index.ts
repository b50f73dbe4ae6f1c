export * from "./abi";
export { facts, Facts, Attribute, STREAM, TOOLS, IMAGES, FILES, RETRY } from "./facts";
export { decision, Decision, Dimension, GUEST_ERROR } from "./decision";
export { Config } from "./config";
export { Json } from "./json";
export { log } from "./log";
