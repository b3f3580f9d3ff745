/* safetensors.c: opens .safetensors files strictly. The format: 8 bytes little-endian length of the header, the
   header in JSON, then the data.

     {"wte": {"dtype": "F32", "shape": [256, 128], "data_offsets": [0, 131072]}, "__metadata__": {"step": "50"}}

   Rejected: a header above 100 MB or beyond the file, anything but such JSON (other keys or kinds, a name twice),
   sizes that overflow, shape and type that do not make the bytes, and data that overlap, leave holes or end
   elsewhere than the file. */
#include "rt.h"

#include <jansson.h>

enum { MAX_HEADER = 100 * 1000 * 1000 };

static const struct {
  const char *text;
  dtrt_dtype dtype;
} dtypes[] = {{"F32", DTRT_F32}, {"F64", DTRT_F64}, {"BF16", DTRT_BF16}, {"F16", DTRT_F16},
              {"I32", DTRT_I32}, {"I64", DTRT_I64}, {"BOOL", DTRT_BOOL}};

const char *rt_st_dtype(dtrt_dtype t) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (dtypes[i].dtype == t) return dtypes[i].text;
  return "F32";
}

static const char *read_dtype(const json_t *j, StTensor *t) {
  const char *text = json_string_value(j);
  for (size_t i = 0; text && i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(text, dtypes[i].text) == 0) {
      t->dtype = dtypes[i].dtype;
      return NULL;
    }
  return "has an unknown dtype";
}

static const char *read_shape(const json_t *j, StTensor *t, int64_t *bytes) {
  if (!json_is_array(j) || json_array_size(j) > sizeof t->dim / sizeof *t->dim) return "has a malformed shape";
  *bytes = (int64_t)rt_dtype_size(t->dtype);
  t->rank = (int)json_array_size(j);
  for (int i = 0; i < t->rank; i++) {
    const json_t *d = json_array_get(j, (size_t)i);
    t->dim[i] = json_integer_value(d);
    if (!json_is_integer(d) || t->dim[i] < 0) return "has a malformed shape";
    if (!rt_mul(*bytes, t->dim[i], bytes)) return "is too large";
  }
  return NULL;
}

static const char *read_tensor(const json_t *j, StTensor *t, int64_t data_bytes) {
  const json_t *offsets = json_object_get(j, "data_offsets");
  int64_t bytes;
  if (!json_is_object(j) || json_object_size(j) != 3) return "must have exactly dtype, shape and data_offsets";
  const char *wrong = read_dtype(json_object_get(j, "dtype"), t);
  if (!wrong) wrong = read_shape(json_object_get(j, "shape"), t, &bytes);
  if (wrong) return wrong;
  if (json_array_size(offsets) != 2 || !json_is_integer(json_array_get(offsets, 0)) ||
      !json_is_integer(json_array_get(offsets, 1)))
    return "has malformed data_offsets";
  t->begin = json_integer_value(json_array_get(offsets, 0));
  t->end = json_integer_value(json_array_get(offsets, 1));
  if (t->begin < 0 || t->end < t->begin || t->end > data_bytes) return "has data outside the file";
  return t->end - t->begin == bytes ? NULL : "has not as many bytes as its shape and dtype need";
}

static const char *check_metadata(const json_t *j) {
  const char *key;
  json_t *value;
  if (!json_is_object(j)) return "must be an object of strings";
  json_object_foreach((json_t *)(uintptr_t)j, key, value) {
    if (!json_is_string(value)) return "must be an object of strings";
  }
  return NULL;
}

static int by_begin(const void *x, const void *y) {
  const StTensor *a = x, *b = y;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return a->end < b->end ? -1 : a->end > b->end;
}

static bool reject(StFile *f, char *why, const char *tensor, const char *wrong) {
  if (tensor)
    snprintf(why, RT_MESSAGE, "cannot use %s: %.200s %s", f->map.name, tensor, wrong);
  else
    snprintf(why, RT_MESSAGE, "cannot use %s: %s", f->map.name, wrong);
  rt_st_close(f);
  return false;
}

static bool read_entries(StFile *f, int64_t data_bytes, char *why) {
  const char *name;
  json_t *entry;
  f->tensor = rt_alloc(json_object_size(f->json), sizeof *f->tensor);
  json_object_foreach((json_t *)f->json, name, entry) {
    bool metadata = strcmp(name, "__metadata__") == 0;
    StTensor *t = &f->tensor[f->n];
    const char *wrong = metadata ? check_metadata(entry) : read_tensor(entry, t, data_bytes);
    if (wrong) return reject(f, why, name, wrong);
    if (metadata) continue;
    t->name = name;
    f->n++;
  }
  qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_begin);
  int64_t at = 0;
  for (int i = 0; i < f->n; at = f->tensor[i++].end)
    if (f->tensor[i].begin != at)
      return reject(f, why, f->tensor[i].name, f->tensor[i].begin < at ? "overlaps another tensor" : "leaves a hole before it");
  return at == data_bytes || reject(f, why, NULL, "it has bytes after the last tensor");
}

bool rt_st_open(const char *name, StFile *f, char *why) {
  *f = (StFile){0};
  if (!rt_map(name, &f->map, why)) return false;
  uint64_t header = 0;
  if (f->map.bytes < 8) return reject(f, why, NULL, "it is cut off");
  for (int i = 7; i >= 0; i--) header = header << 8 | f->map.at[i];
  if (header > MAX_HEADER) return reject(f, why, NULL, "its header is longer than 100 MB");
  if ((int64_t)header > f->map.bytes - 8) return reject(f, why, NULL, "its header ends beyond the file");
  const char *text = (const char *)f->map.at + 8;
  json_error_t error;
  f->json = header && *text == '{' ? json_loadb(text, header, JSON_REJECT_DUPLICATES, &error) : NULL;
  if (!f->json) return reject(f, why, NULL, "its header is not a JSON object without repeated names");
  f->data = f->map.at + 8 + header;
  return read_entries(f, f->map.bytes - 8 - (int64_t)header, why);
}

void rt_st_close(StFile *f) {
  json_decref(f->json);
  free(f->tensor);
  const char *name = f->map.name; /* for a message that is still being written */
  rt_unmap(&f->map);
  *f = (StFile){.map.name = name};
}

const StTensor *rt_st_find(const StFile *f, const char *name) {
  for (int i = 0; i < f->n; i++)
    if (strcmp(f->tensor[i].name, name) == 0) return &f->tensor[i];
  return NULL;
}

const char *rt_st_metadata(const StFile *f, const char *key) {
  return json_string_value(json_object_get(json_object_get(f->json, "__metadata__"), key));
}
