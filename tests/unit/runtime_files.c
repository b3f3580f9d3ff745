/* runtime_files.c: files that are not what they should be, one rule per case: .safetensors through --init and
   --resume of the toy program, .npy and tokens as its inputs. Each must end the run with exit 1 and one clear line
   before anything is trained. */
#include "runtime_toy.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

static void expect(const char *file, int line, const char *what, Ran r, const char *part) {
  const char *at = strstr(r.text, part);
  bool one_line = at && strchr(at, '\n') && strchr(at, '\n')[1] == 0;
  if (r.rc != 1 || !one_line || strstr(r.text, "step 1/") || strstr(r.text, "step  1/"))
    unit_fail(file, line, "%s: exit %d, expected 1 and \"%s\"\n%s", what, r.rc, part, r.text);
}

/* ---- safetensors ---- */

/* header_bytes < 0: as long as the header is. */
static const char *st(const char *header, int64_t header_bytes, size_t data_bytes) {
  char bytes[8192] = {0};
  size_t n = strlen(header);
  uint64_t length = header_bytes < 0 ? n : (uint64_t)header_bytes;
  for (int i = 0; i < 8; i++) bytes[i] = (char)(length >> (8 * i));
  memcpy(bytes + 8, header, n);
  const char *path = run_path("x.safetensors");
  run_write(path, bytes, 8 + n + data_bytes);
  return path;
}

#define W "\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [0, 96]}"
#define M "\"m.w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [96, 192]}"
#define S "\"step\": {\"dtype\": \"I64\", \"shape\": [], \"data_offsets\": [192, 200]}"

UNIT(safetensors_that_break_a_rule_are_rejected) {
  static const struct {
    const char *header;
    int64_t header_bytes;
    size_t data_bytes;
    const char *part;
  } bad[] = {
      {"", 0, 0, "its header is not a JSON object"},
      {"{}", 100000001, 0, "its header is longer than 100 MB"},
      {"{}", INT64_MAX, 0, "its header is longer than 100 MB"},
      {"{}", 3, 0, "its header ends beyond the file"},
      {"[1]", -1, 0, "its header is not a JSON object"},
      {" {}", -1, 0, "its header is not a JSON object"},
      {"{" W "} x", -1, 96, "its header is not a JSON object"},
      {"{" W ", " W "}", -1, 96, "its header is not a JSON object without repeated names"},
      {"{\"w\": 3}", -1, 0, "w must have exactly dtype, shape and data_offsets"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4]}}", -1, 96, "w must have exactly dtype, shape and data_offsets"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [0, 96], \"x\": 1}}", -1, 96, "w must have exactly"},
      {"{\"w\": {\"dtype\": \"F33\", \"shape\": [6, 4], \"data_offsets\": [0, 96]}}", -1, 96, "w has an unknown dtype"},
      {"{\"w\": {\"dtype\": 1, \"shape\": [6, 4], \"data_offsets\": [0, 96]}}", -1, 96, "w has an unknown dtype"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": 24, \"data_offsets\": [0, 96]}}", -1, 96, "w has a malformed shape"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6.0, 4], \"data_offsets\": [0, 96]}}", -1, 96, "w has a malformed shape"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [-6, -4], \"data_offsets\": [0, 96]}}", -1, 96, "w has a malformed shape"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], \"data_offsets\": [0, 0]}}", -1, 0, "w is too large"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [99999999999999999999], \"data_offsets\": [0, 0]}}", -1, 0, "not a JSON object"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [0]}}", -1, 96, "w has malformed data_offsets"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [0, \"96\"]}}", -1, 96, "w has malformed data_offsets"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [0, 96]}}", -1, 95, "w has data outside the file"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [96, 0]}}", -1, 96, "w has data outside the file"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [-96, 0]}}", -1, 96, "w has data outside the file"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [0, 92]}}", -1, 96, "w has not as many bytes"},
      {"{" W "}", -1, 97, "it has bytes after the last tensor"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [6, 4], \"data_offsets\": [4, 100]}}", -1, 100, "w leaves a hole before it"},
      {"{" W ", \"v\": {\"dtype\": \"F32\", \"shape\": [24], \"data_offsets\": [92, 188]}}", -1, 188,
       "v overlaps another tensor"},
      {"{\"__metadata__\": {\"a\": 1}, " W "}", -1, 96, "__metadata__ must be an object of strings"},
      {"{\"__metadata__\": [], " W "}", -1, 96, "__metadata__ must be an object of strings"},
      {"{}", -1, 0, "has no tensor w (toy.dt:3)"},
      {"{" W ", \"v\": {\"dtype\": \"F32\", \"shape\": [], \"data_offsets\": [96, 100]}}", -1, 100,
       "has a tensor v that this program does not have"},
      {"{\"w\": {\"dtype\": \"F32\", \"shape\": [4, 6], \"data_offsets\": [0, 96]}}", -1, 96,
       "w is f32[4, 6], but the program needs f32[6, 4] (toy.dt:3)"},
      {"{\"w\": {\"dtype\": \"I32\", \"shape\": [6, 4], \"data_offsets\": [0, 96]}}", -1, 96,
       "w is i32[6, 4], but the program needs f32[6, 4]"},
  };
  toy_corpus(200);
  dtrt_Program *p = toy_program(2, true);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    expect(__FILE__, __LINE__, bad[i].header,
           RUN(p, "--data-dir", run_folder(), "--init", st(bad[i].header, bad[i].header_bytes, bad[i].data_bytes)), bad[i].part);
  run_write(run_path("x.safetensors"), "1234567", 7);
  expect(__FILE__, __LINE__, "seven bytes", RUN(p, "--data-dir", run_folder(), "--init", run_path("x.safetensors")),
         "it is cut off");
  expect(__FILE__, __LINE__, "no file", RUN(p, "--data-dir", run_folder(), "--init", run_path("none")), "No such file");
  expect(__FILE__, __LINE__, "a folder", RUN(p, "--data-dir", run_folder(), "--init", run_folder()), "is not a file");
  run_clean();
}

UNIT(a_resumed_file_must_hold_everything) {
  toy_corpus(200);
  dtrt_Program *p = toy_program(1, true);
#define RESUME(header, bytes, part)                                                                                              \
  expect(__FILE__, __LINE__, header, RUN(p, "--data-dir", run_folder(), "--resume", st(header, -1, bytes)), part)
  RESUME("{" W "}", 96, "has no tensor m.w");
  RESUME("{" W ", " M "}", 192, "has no tensor step");
  RESUME("{" W ", " M ", " S "}", 200, "its metadata have no step (was it written by --save?)");
  RESUME("{\"__metadata__\": {\"step\": \"3\"}, " W ", " M ", " S "}", 200, "its metadata have no seed");
  RESUME("{\"__metadata__\": {\"step\": \"-3\", \"seed\": \"1\"}, " W ", " M ", " S "}", 200, "its metadata have no step");
  RESUME("{\"__metadata__\": {\"step\": \"3x\", \"seed\": \"1\"}, " W ", " M ", " S "}", 200, "its metadata have no step");
  RESUME("{\"__metadata__\": {\"step\": \"18446744073709551615\", \"seed\": \"1\"}, " W ", " M ", " S "}", 200,
         "its step is out of range");
  Ran r = RUN(p, "--data-dir", run_folder(), "--resume",
              st("{\"__metadata__\": {\"step\": \"9\", \"seed\": \"1\"}, " W ", " M ", " S "}", -1, 200));
  CHECK(r.rc == 0 && strstr(r.text, "step 10/10") && !strstr(r.text, "step  9/10"));
  run_clean();
}

UNIT(initial_values_are_converted) {
  toy_corpus(200);
  const char *init = run_path("init"), *saved = run_path("saved");
  char bytes[1024] = {0}, back[4096];
  const char *header = "{\"w\": {\"dtype\": \"F16\", \"shape\": [6, 4], \"data_offsets\": [0, 48]}}";
  bytes[0] = (char)strlen(header);
  memcpy(bytes + 8, header, strlen(header));
  for (int i = 0; i < TOY_W; i++) bytes[8 + strlen(header) + (size_t)i * 2 + 1] = (char)0xc0; /* -2 in f16 */
  run_write(init, bytes, 8 + strlen(header) + 48);
  Ran r = RUN(toy_program(3, true), "--data-dir", run_folder(), "--init", init, "--set", "optimizer.lr=0", "--steps", "1",
              "--save", saved);
  CHECK_EQ(r.rc, 0);
  size_t n = run_read(saved, back, sizeof back), start = 8 + (unsigned char)back[0] + 256u * (unsigned char)back[1];
  float w[TOY_W];
  CHECK(n > start + sizeof w);
  memcpy(w, back + start, sizeof w);
  for (int i = 0; i < TOY_W; i++) CHECK(w[i] == -2);
  run_clean();
}

/* ---- npy ---- */

static dtrt_Leaf table;

/* Element e of the file is e: step s must show rows 2 s and 2 s + 1 (mod 5) of this rank's columns. */
static void look(dtrt_Context *cx) {
  int64_t lo, n;
  const int32_t *x = (const int32_t *)cx->arena;
  dtrt_range(cx, &table.layout.dim[1], &lo, &n);
  for (int64_t i = 0; i < 2; i++)
    for (int64_t j = 0; j < n && table.limit == 15; j++) {
      int64_t want = (2 * cx->step + i) % 5 * 3 + lo + j, got = x[i * table.layout.dim[1].chunk + j];
      if (got != want) dtrt_out_of_range(cx, got, want, "x", 4);
    }
}

static const dtrt_Program *table_program(int nranks, dtrt_dtype t, int64_t limit) {
  static dtrt_Program p;
  table = (dtrt_Leaf){DTRT_INPUT,       "x",      LAYOUT(t, 2, 3), 0, .source = DTRT_TABLE, .file = "x.npy", .limit = limit,
                      .limit_dim = "V", .line = 4};
  if (nranks > 1) run_split(&table.layout, 1, 1, nranks);
  p = (dtrt_Program){.abi = DTRT_ABI,
                     .source = "t.dt",
                     .version = "test",
                     .nranks = nranks,
                     .arena_bytes = 4096,
                     .nleaves = 1,
                     .leaf = &table,
                     .steps = 9,
                     .trains = true,
                     .forward = look};
  return &p;
}

static const char *npy(int major, const char *header, const void *data, size_t bytes) {
  unsigned char file[4096] = "\x93NUMPY";
  size_t n = strlen(header), start = major == 2 ? 12 : 10;
  file[6] = (unsigned char)major;
  file[8] = (unsigned char)n;
  memcpy(file + start, header, n);
  memcpy(file + start + n, data, bytes);
  const char *path = run_path("x.npy");
  run_write(path, file, start + n + bytes);
  return path;
}

#define HEADER(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': " shape ", }"

UNIT(npy_files_that_break_a_rule_are_rejected) {
  static const struct {
    int major;
    const char *header;
    size_t bytes;
    const char *part;
  } bad[] = {
      {3, HEADER("<f4", "False", "(5, 3)"), 60, "only .npy versions 1 and 2 can be read"},
      {1, HEADER("<f2", "False", "(5, 3)"), 30, "its dtype is not one of"},
      {1, HEADER(">f4", "False", "(5, 3)"), 60, "its dtype is not one of"},
      {1, HEADER("<f4", "True", "(5, 3)"), 60, "it is not in C order"},
      {1, HEADER("<f4", "False", "5, 3"), 60, "its shape is malformed"},
      {1, HEADER("<f4", "False", "(5, -3)"), 60, "its shape is malformed"},
      {1, HEADER("<f4", "False", "(15)"), 60, "its shape is malformed"},
      {1, HEADER("<f4", "False", "(99999999999999999999, 3)"), 60, "its shape is malformed"},
      {1, HEADER("<f4", "False", "(4611686018427387904, 3)"), 60, "its shape is too large"},
      {1, HEADER("<f4", "False", "(5, 3)"), 59, "it is cut off: it has fewer bytes than its shape says"},
      {1, HEADER("<f4", "False", "(5, 3)"), 61, "it has more bytes than its shape says"},
      {1, "{'descr': '<f4', 'shape': (5, 3), }", 60, "its header is malformed"},
      {1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (5, 3)}", 60, "its header is malformed"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3), 'x': 1}", 60, "its header is malformed"},
      {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 3)", 60, "its header is malformed"},
      {1, HEADER("<f4", "False", "(5, 3)") " x", 60, "its header is malformed"},
      {1, "", 0, "its header is malformed"},
      {1, HEADER("<i4", "False", "(5, 3)"), 60, "is i32[5, 3], but the input x needs f32[rows, 3]"},
      {1, HEADER("<f4", "False", "(5, 4)"), 80, "is f32[5, 4], but the input x needs f32[rows, 3]"},
      {1, HEADER("<f4", "False", "(15,)"), 60, "is f32[15], but the input x needs f32[rows, 3]"},
      {1, HEADER("<f4", "False", "(0, 3)"), 0, "it has no rows"},
  };
  static const char zeros[256];
  const dtrt_Program *p = table_program(2, DTRT_F32, 0);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    npy(bad[i].major, bad[i].header, zeros, bad[i].bytes);
    expect(__FILE__, __LINE__, bad[i].header, RUN(p, "--data-dir", run_folder()), bad[i].part);
  }
  run_write(run_path("x.npy"), "\x93NUMPY\1\0\xff\xff{", 11);
  expect(__FILE__, __LINE__, "short", RUN(p, "--data-dir", run_folder()), "it is cut off");
  run_write(run_path("x.npy"), "hello, world", 12);
  expect(__FILE__, __LINE__, "text", RUN(p, "--data-dir", run_folder()), "it is no .npy file");
  run_write(run_path("x.npy"), "", 0);
  expect(__FILE__, __LINE__, "empty", RUN(p, "--data-dir", run_folder()), "is empty");
  expect(__FILE__, __LINE__, "missing", RUN(p, "--data", "x=/no/such"), "cannot read /no/such: No such file");
  run_clean();
}

UNIT(rows_come_in_file_order_and_wrap_around) {
  int32_t data[15];
  for (int i = 0; i < 15; i++) data[i] = i;
  npy(2, HEADER("<i4", "False", "(5, 3)"), data, sizeof data);
  const dtrt_Program *p = table_program(1, DTRT_I32, 15);
  CHECK_EQ(RUN(p, "--data-dir", run_folder()).rc, 0);
  CHECK_EQ(RUN(table_program(2, DTRT_I32, 15), "--data-dir", run_folder()).rc, 0);
  expect(__FILE__, __LINE__, "limit", RUN(table_program(2, DTRT_I32, 13), "--data-dir", run_folder()),
         "the value 13 at position 13 is outside V = 13, which the input x (t.dt:4) needs");
  data[1] = -1;
  npy(1, HEADER("<i4", "False", "(5, 3)"), data, sizeof data);
  expect(__FILE__, __LINE__, "negative", RUN(p, "--data-dir", run_folder()), "the value -1 at position 1 is outside V = 13");
  run_clean();
}

/* ---- tokens ---- */

static const char *tokens(uint32_t magic, uint32_t version, uint32_t count, int width, int there) {
  char file[4096] = {0};
  memcpy(file, (uint32_t[]){magic, version, count}, 12);
  for (int i = 0; i < there; i++) memcpy(file + 1024 + i * width, &(uint32_t){(uint32_t)i * 10}, (size_t)width);
  const char *path = run_path("corpus.bin");
  run_write(path, file, (size_t)(1024 + there * width));
  return path;
}

UNIT(token_files_of_llm_c_and_bytes) {
  dtrt_Program *p = toy_program(2, true);
  const char *dir = run_folder();
  tokens(20240520, 1, 100, 2, 100);
  CHECK_EQ(RUN(p, "--data-dir", dir).rc, 0);
  tokens(20240801, 7, 100, 4, 100);
  CHECK_EQ(RUN(p, "--data-dir", dir).rc, 0);
  tokens(20240520, 2, 100, 2, 100);
  expect(__FILE__, __LINE__, "version", RUN(p, "--data-dir", dir), "another version");
  tokens(20240520, 1, 100, 2, 99);
  expect(__FILE__, __LINE__, "short", RUN(p, "--data-dir", dir), "it has fewer tokens than its header says");
  tokens(20240520, 1, 100, 2, 101);
  expect(__FILE__, __LINE__, "long", RUN(p, "--data-dir", dir), "it has more bytes than its header says");
  toy_corpus(3);
  expect(__FILE__, __LINE__, "small", RUN(p, "--data-dir", dir), "it is shorter than one window of T + 1 tokens");
  toy_corpus(4);
  CHECK_EQ(RUN(p, "--data-dir", dir).rc, 0);
  toy_corpus(200);
  toy_limit(31);
  CHECK_EQ(RUN(p, "--data-dir", dir).rc, 0);
  toy_limit(30);
  expect(__FILE__, __LINE__, "vocabulary", RUN(p, "--data-dir", dir),
         "the value 30 at position 30 is outside V = 30, which the input tok (toy.dt:2) needs");
  run_clean();
}
