// The configuration: a reader for the JSON that weir_configure is given. Part of weir.h; include that.
//
// The host wrote it, so it is valid JSON. A value that is missing or of another type reads as the fallback.
#ifndef WEIR_CONFIG_H
#define WEIR_CONFIG_H

// Fuel is charged for all of a loop's body at each turn, taken or not: what is seldom needed stands in a function.
#define WEIR_APART __attribute__((noinline))

extern unsigned char __heap_base; // the linker's: where static memory ends

// Memory for what a policy keeps from its configuration, zeroed, at a multiple of 16; never freed. Only in
// weir_configure: there is no other allocation. It traps when the module's memory (1 MiB) is full: the activation is refused.
WEIR_APART static void *weir_alloc(uint32_t size) {
  static uintptr_t top;
  const uintptr_t page = 64 << 10;
  if (top == 0) top = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
  const uintptr_t end = top + ((size + 15) & ~(uintptr_t)15), have = __builtin_wasm_memory_size(0) * page;
  if (end < top || end > UINT32_MAX - page) __builtin_trap();
  if (end > have && __builtin_wasm_memory_grow(0, (end - have + page - 1) / page) == (size_t)-1) __builtin_trap();
  void *p = (void *)top;
  top = end;
  return p;
}

static uint8_t *weir_params_memory;

void *WEIR_EXPORT(weir_params_buffer)(int32_t len) {
  if (len < 0 || (uint32_t)len > WEIR_PARAMS_MAX) return NULL;
  return weir_params_memory = weir_alloc((uint32_t)len + 8); // eight bytes are read at a time
}

// One value of the configuration, NULL: there is none. The document is read once, into these nodes: a value is followed by
// what it contains (in an object a name, then its value), and next is where that ends.
typedef const struct weir_node *weir_json;

struct weir_node {
  const uint8_t *ptr, *end; // its text
  const struct weir_node *next;
  struct weir_node *parent; // only while reading
};

// Marks which of the eight bytes at p are c, by their highest bits; exact up to the first. Behind the text there is room.
static inline uint64_t weir_json_marks(const uint8_t *p, uint8_t c) {
  const uint64_t ones = 0x0101010101010101;
  uint64_t x;
  __builtin_memcpy(&x, p, 8);
  x ^= ones * c;
  return (x - ones) & ~x & (ones << 7);
}

// The first a or b from p on, or end.
WEIR_APART static const uint8_t *weir_json_find(const uint8_t *p, const uint8_t *end, uint8_t a, uint8_t b) {
  uint64_t marks = 0;
  while (p < end && (marks = weir_json_marks(p, a) | weir_json_marks(p, b)) == 0) p += 8;
  if (p < end) p += __builtin_ctzll(marks) / 8;
  return p < end ? p : end;
}

// The end of the string that starts at p.
WEIR_APART static const uint8_t *weir_json_text_end(const uint8_t *p, const uint8_t *end) {
  for (p++;; p += 2) { // a backslash and what it escapes
    p = weir_json_find(p, end, '"', '\\');
    if (p >= end) return end;
    if (*p == '"') return p + 1;
  }
}

// The end of the blanks, commas and colons from p on.
WEIR_APART static const uint8_t *weir_json_separators_end(const uint8_t *p, const uint8_t *end) {
  while (p < end && (*p <= ' ' || *p == ',' || *p == ':')) p++;
  return p;
}

// The end of the number or word that starts at p.
WEIR_APART static const uint8_t *weir_json_word_end(const uint8_t *p, const uint8_t *end) {
  do p++;
  while (p < end && *p > ' ' && *p != ',' && *p != ']' && *p != '}' && *p != ':');
  return p;
}

// Reads a document into nodes, once, front to back. NULL: it is empty.
WEIR_APART static weir_json weir_json_read(const uint8_t *p, const uint8_t *end) {
  struct weir_node *first = NULL, *top = NULL, *room = NULL, *parent = NULL;
  while ((p = weir_json_separators_end(p, end)) < end) {
    const uint8_t c = *p;
    if (c == '}' || c == ']') {
      if (parent == NULL) break;
      parent->end = ++p;
      parent->next = top;
      parent = parent->parent;
      continue;
    }
    if (top == room) { // nothing else allocates meanwhile: the nodes follow each other
      struct weir_node *more = weir_alloc(64 * sizeof *more);
      if (first == NULL) first = top = more;
      room = more + 64;
    }
    struct weir_node *node = top++;
    node->ptr = p;
    node->end = end;
    node->next = top;
    node->parent = parent;
    if (c == '{' || c == '[') {
      parent = node;
      p++;
    } else {
      p = node->end = c == '"' ? weir_json_text_end(p, end) : weir_json_word_end(p, end);
    }
  }
  for (; parent != NULL; parent = parent->parent) parent->next = top; // of a broken document
  return first;
}

static inline uint8_t weir_json_first(weir_json j) { return j == NULL ? 0 : *j->ptr; }

static inline uint32_t weir_json_hex4(const uint8_t *p, const uint8_t *end) {
  uint32_t unit = 0;
  for (int i = 0; i < 4 && p + i < end; i++) unit = unit << 4 | (p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10u);
  return unit;
}

// Writes the character that an escape stands for to `to` (1 to 4 bytes) and gives how many; *p is behind the backslash
// and moves behind the escape. A surrogate without its half becomes U+FFFD.
WEIR_APART static uint32_t weir_json_unescape(const uint8_t **p, const uint8_t *end, uint8_t *to) {
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

// Decodes what is between the quotes of a string to `to`, which has room for it as it stands; gives the length.
WEIR_APART static uint32_t weir_json_decode(const uint8_t *p, const uint8_t *end, uint8_t *to) {
  uint32_t n = 0;
  while (p < end) {
    const uint8_t *stop = weir_json_find(p, end, '\\', '\\');
    __builtin_memcpy(to + n, p, (size_t)(stop - p));
    n += (uint32_t)(stop - p);
    p = stop + 1;
    if (stop < end) n += weir_json_unescape(&p, end, to + n);
  }
  return n;
}

// What is between the quotes of a string, escapes and all; ptr is NULL for any other value.
static weir_text weir_json_inside(weir_json j) {
  if (weir_json_first(j) != '"') return (weir_text){0};
  const uint32_t len = (uint32_t)(j->end - j->ptr) - 1;
  return (weir_text){(const char *)j->ptr + 1, len > 0 && j->end[-1] == '"' ? len - 1 : len};
}

// Reports whether a value is the string `want`.
WEIR_APART static bool weir_json_is(weir_json j, weir_text want) {
  const weir_text raw = weir_json_inside(j);
  if (raw.ptr == NULL || raw.len < want.len) return false; // an escape is longer than what it stands for
  const uint8_t *p = (const uint8_t *)raw.ptr, *end = p + raw.len;
  if (weir_json_find(p, end, '\\', '\\') == end) return weir_equals(raw, want);
  uint32_t n = 0;
  while (p < end) {
    uint8_t c[4];
    uint32_t size = 1;
    if (*p == '\\') {
      p++;
      size = weir_json_unescape(&p, end, c);
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
  if (weir_json_first(j) != '{') return NULL;
  for (weir_json key = j + 1, value; key < j->next && key->next < j->next; key = value->next) {
    value = key->next;
    if (weir_json_is(key, name)) return value;
  }
  return NULL;
}

// A walk along an array: weir_list list = weir_elements(j); weir_json e; while (weir_each(&list, &e)) ...
typedef struct {
  weir_json at, end;
} weir_list;

WEIR_UNUSED static weir_list weir_elements(weir_json j) {
  if (weir_json_first(j) != '[') return (weir_list){0};
  return (weir_list){j + 1, j->next};
}

WEIR_UNUSED static bool weir_each(weir_list *list, weir_json *element) {
  if (list->at >= list->end) return false;
  *element = list->at;
  list->at = list->at->next;
  return true;
}

// How many elements an array has; 0 for anything else.
WEIR_UNUSED static uint32_t weir_count(weir_json j) {
  uint32_t n = 0;
  weir_json e;
  for (weir_list list = weir_elements(j); weir_each(&list, &e);) n++;
  return n;
}

WEIR_UNUSED static bool weir_bool(weir_json j, bool fallback) {
  const uint8_t c = weir_json_first(j);
  return c == 't' ? true : c == 'f' ? false : fallback;
}

// A whole number; a fraction or an exponent reads as the fallback.
WEIR_UNUSED static int64_t weir_integer(weir_json j, int64_t fallback) {
  if (j == NULL) return fallback;
  const bool negative = *j->ptr == '-';
  const uint8_t *p = j->ptr + negative;
  if (p >= j->end) return fallback;
  int64_t n = 0;
  for (; p < j->end; p++) {
    if (*p < '0' || *p > '9' || n > 900000000000000000) return fallback;
    n = n * 10 + (*p - '0');
  }
  return negative ? -n : n;
}

// A string; valid as long as the instance lives.
WEIR_UNUSED static weir_text weir_string(weir_json j, weir_text fallback) {
  const weir_text raw = weir_json_inside(j);
  if (raw.ptr == NULL) return fallback;
  const uint8_t *p = (const uint8_t *)raw.ptr, *end = p + raw.len;
  if (weir_json_find(p, end, '\\', '\\') == end) return raw;
  uint8_t *text = weir_alloc(raw.len + 4);
  return (weir_text){(const char *)text, weir_json_decode(p, end, text)};
}

// What the operator configured.
typedef struct {
  weir_json tiers;  // names in index order
  weir_json labels; // names of attributes 8 to 15
  weir_json params; // the module's own
} weir_config;

// Reads the configuration; len is what weir_configure was given.
static inline weir_config weir_config_read(int32_t len) {
  const weir_json root = weir_json_read(weir_params_memory, weir_params_memory + len);
  return (weir_config){weir_get(root, "tiers"), weir_get(root, "labels"), weir_get(root, "params")};
}

static int32_t weir_json_index(weir_json names, weir_text name) {
  int32_t i = 0;
  weir_json e;
  for (weir_list list = weir_elements(names); weir_each(&list, &e); i++) {
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
