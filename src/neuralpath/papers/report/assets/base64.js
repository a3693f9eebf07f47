// Numbers that were written into the page as base64.

export function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Single-precision numbers, the lowest byte first, as every browser's processor has them. */
export function floats(text) {
  return new Float32Array(bytes(text).buffer);
}
