// The configuration: a reader for the JSON that weir_configure is given. Part of weir.h; include that.
//
// The host wrote it, so it is valid JSON. A value that is missing or of another type reads as the fallback.
#ifndef WEIR_CONFIG_H
#define WEIR_CONFIG_H

extern unsigned char __heap_base; // the linker's: where static memory ends

// Memory for what a policy keeps from its configuration, zeroed, at a multiple of 16; never freed. Only in
// weir_configure: there is no other allocation. NULL: the module's memory (1 MiB) is full.
static inline void *weir_alloc(uint32_t size) {
  static uintptr_t top;
  const uintptr_t page = 64 << 10;
  if (top == 0) top = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
  const uintptr_t end = top + ((size + 15) & ~(uintptr_t)15), have = __builtin_wasm_memory_size(0) * page;
  if (end < top) return NULL;
  if (end > have && __builtin_wasm_memory_grow(0, (end - have + page - 1) / page) == (size_t)-1) return NULL;
  void *p = (void *)top;
  top = end;
  return p;
}

static uint8_t *weir_params_memory;

void *WEIR_EXPORT(weir_params_buffer)(int32_t len) {
  if (len < 0 || (uint32_t)len > WEIR_PARAMS_MAX) return NULL;
  return weir_params_memory = weir_alloc((uint32_t)len);
}

// One value in the configuration's text.
typedef struct {
  const uint8_t *ptr, *end;
} weir_json;

static const uint8_t *weir_json_blank(const uint8_t *p, const uint8_t *end) {
  while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) p++;
  return p;
}

static const uint8_t *weir_json_text_end(const uint8_t *p, const uint8_t *end) {
  for (p++; p < end; p++) {
    if (*p == '"') return p + 1;
    if (*p == '\\') p++;
  }
  return end;
}

// The end of the value that starts at p.
static const uint8_t *weir_json_value_end(const uint8_t *p, const uint8_t *end) {
  int32_t depth = 0;
  while (p < end) {
    const uint8_t c = *p;
    if (c == '"') {
      p = weir_json_text_end(p, end);
      if (depth == 0) return p;
      continue;
    }
    if (c == '{' || c == '[') {
      depth++;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return p;
      if (--depth == 0) return p + 1;
    } else if (depth == 0 && (c == ',' || weir_json_blank(p, end) != p)) {
      return p;
    }
    p++;
  }
  return end;
}

static inline uint8_t weir_json_first(weir_json j) { return j.ptr < j.end ? *j.ptr : 0; }

// The value after the one that ended at p: past a comma.
static inline const uint8_t *weir_json_next(const uint8_t *p, const uint8_t *end) {
  p = weir_json_blank(p, end);
  return p < end && *p == ',' ? weir_json_blank(p + 1, end) : p;
}

static inline uint32_t weir_json_hex4(const uint8_t *p, const uint8_t *end) {
  uint32_t unit = 0;
  for (int i = 0; i < 4 && p + i < end; i++) unit = unit << 4 | (p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10u);
  return unit;
}

// Writes the character that an escape stands for to `to` (1 to 4 bytes) and gives how many; *p is behind the backslash
// and moves behind the escape. A surrogate without its half becomes U+FFFD.
static uint32_t weir_json_unescape(const uint8_t **p, const uint8_t *end, uint8_t *to) {
  uint32_t c = *p < end ? *(*p)++ : 0;
  switch (c) {
    case 'b': c = '\b'; break;
    case 'f': c = '\f'; break;
    case 'n': c = '\n'; break;
    case 'r': c = '\r'; break;
    case 't': c = '\t'; break;
    case 'u': {
      c = weir_json_hex4(*p, end);
      *p += 4;
      const bool pair = c >= 0xd800 && c < 0xdc00 && end - *p >= 6 && (*p)[0] == '\\' && (*p)[1] == 'u';
      const uint32_t low = pair ? weir_json_hex4(*p + 2, end) : 0;
      if (low >= 0xdc00 && low < 0xe000) {
        c = 0x10000 + ((c & 0x3ff) << 10) + (low & 0x3ff);
        *p += 6;
      } else if (c >= 0xd800 && c < 0xe000) {
        c = 0xfffd;
      }
    }
  }
  if (c < 0x80) return to[0] = (uint8_t)c, 1;
  uint32_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (uint32_t i = n - 1; i > 0; i--, c >>= 6) to[i] = (uint8_t)(0x80 | (c & 0x3f));
  to[0] = (uint8_t)((0xf00 >> n) | c);
  return n;
}

// Decodes a JSON string to `to`, which has room for its text as it stands; gives the length.
static uint32_t weir_json_decode(weir_json j, uint8_t *to) {
  uint32_t n = 0;
  for (const uint8_t *p = j.ptr + 1; p < j.end && *p != '"';) {
    if (*p == '\\') {
      p++;
      n += weir_json_unescape(&p, j.end, to + n);
    } else {
      to[n++] = *p++;
    }
  }
  return n;
}

// Reports whether a value is the string `want`.
static bool weir_json_is(weir_json j, weir_text want) {
  if (weir_json_first(j) != '"') return false;
  uint32_t n = 0;
  for (const uint8_t *p = j.ptr + 1; p < j.end && *p != '"';) {
    uint8_t c[4];
    uint32_t size = 1;
    if (*p == '\\') {
      p++;
      size = weir_json_unescape(&p, j.end, c);
    } else {
      c[0] = *p++;
    }
    if (!weir_starts_with((weir_text){want.ptr + n, want.len - n}, (weir_text){(const char *)c, size})) return false;
    n += size;
  }
  return n == want.len;
}

// Reports that there is no such value, or that it is null.
WEIR_UNUSED static bool weir_is_absent(weir_json j) { return weir_json_first(j) == 0 || weir_json_first(j) == 'n'; }

// A member of an object.
WEIR_UNUSED static weir_json weir_get(weir_json j, const char *member) {
  weir_text name = {member, 0};
  while (member[name.len] != 0) name.len++;
  if (weir_json_first(j) != '{') return (weir_json){0};
  const uint8_t *p = weir_json_blank(j.ptr + 1, j.end);
  while (p < j.end && *p == '"') {
    const uint8_t *key_end = weir_json_text_end(p, j.end);
    const weir_json key = {p, key_end};
    p = weir_json_blank(key_end, j.end);
    p = weir_json_blank(p < j.end ? p + 1 : p, j.end); // :
    const uint8_t *value_end = weir_json_value_end(p, j.end);
    if (weir_json_is(key, name)) return (weir_json){p, value_end};
    p = weir_json_next(value_end, j.end);
  }
  return (weir_json){0};
}

// Walks an array: weir_json list = weir_elements(j), e; while (weir_each(&list, &e)) ...
WEIR_UNUSED static weir_json weir_elements(weir_json j) {
  if (weir_json_first(j) != '[') return (weir_json){0};
  return (weir_json){weir_json_blank(j.ptr + 1, j.end), j.end};
}

WEIR_UNUSED static bool weir_each(weir_json *list, weir_json *element) {
  if (weir_json_first(*list) == 0 || weir_json_first(*list) == ']') return false;
  const uint8_t *end = weir_json_value_end(list->ptr, list->end);
  if (end == list->ptr) return false;
  *element = (weir_json){list->ptr, end};
  list->ptr = weir_json_next(end, list->end);
  return true;
}

// How many elements an array has; 0 for anything else.
WEIR_UNUSED static uint32_t weir_count(weir_json j) {
  uint32_t n = 0;
  for (weir_json list = weir_elements(j), e; weir_each(&list, &e);) n++;
  return n;
}

WEIR_UNUSED static bool weir_bool(weir_json j, bool fallback) {
  const uint8_t c = weir_json_first(j);
  return c == 't' ? true : c == 'f' ? false : fallback;
}

// A whole number; a fraction or an exponent reads as the fallback.
WEIR_UNUSED static int64_t weir_integer(weir_json j, int64_t fallback) {
  const bool negative = weir_json_first(j) == '-';
  const uint8_t *p = j.ptr + negative;
  if (p >= j.end) return fallback;
  int64_t n = 0;
  for (; p < j.end; p++) {
    if (*p < '0' || *p > '9' || n > 900000000000000000) return fallback;
    n = n * 10 + (*p - '0');
  }
  return negative ? -n : n;
}

// A string; valid as long as the instance lives.
WEIR_UNUSED static weir_text weir_string(weir_json j, weir_text fallback) {
  if (weir_json_first(j) != '"') return fallback;
  uint8_t *text = weir_alloc((uint32_t)(j.end - j.ptr));
  if (text == NULL) return fallback;
  return (weir_text){(const char *)text, weir_json_decode(j, text)};
}

// What the operator configured.
typedef struct {
  weir_json tiers;  // names in index order
  weir_json labels; // names of attributes 8 to 15
  weir_json params; // the module's own
} weir_config;

// Reads the configuration; len is what weir_configure was given.
static inline weir_config weir_config_read(int32_t len) {
  const weir_json root = {weir_params_memory, weir_params_memory + len};
  return (weir_config){weir_get(root, "tiers"), weir_get(root, "labels"), weir_get(root, "params")};
}

static int32_t weir_json_index(weir_json names, weir_text name) {
  int32_t i = 0;
  for (weir_json list = weir_elements(names), e; weir_each(&list, &e); i++) {
    if (weir_json_is(e, name)) return i;
  }
  return -1;
}

// Index of the tier of that name; -1: there is none.
WEIR_UNUSED static int32_t weir_tier(weir_config c, weir_text name) { return weir_json_index(c.tiers, name); }

// Number of the attribute that carries the label of that name; -1: it is not configured.
WEIR_UNUSED static int32_t weir_label(weir_config c, weir_text name) {
  const int32_t i = weir_json_index(c.labels, name);
  return i < 0 ? -1 : i + (int32_t)WEIR_ATTR_LABEL0;
}

#endif
