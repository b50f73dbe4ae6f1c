// What every module exports beside weir_configure and weir_decide. A policy's entry file re-exports all of it:
//
//     export * from "…/assembly/exports";
import { VERSION } from "./abi";
import { REQUEST, RESPONSE } from "./memory";
import { paramsBuffer } from "./config";

export function weir_abi_version(): i32 {
  return VERSION;
}

export function weir_request(): usize {
  return REQUEST;
}

export function weir_response(): usize {
  return RESPONSE;
}

export function weir_params_buffer(len: i32): usize {
  return paramsBuffer(len);
}
