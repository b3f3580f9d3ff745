/* ir.c: names, numbering, and what dead code removes. */
#include "ir/ir.h"
#include "unit.h"

static const Type scalar = {.dtype = F32};

static const char *new_name(Module *m, const char *name) {
  ValueId v = ir_value(m, name, scalar, (Loc){0});
  return m->values.at[v].name;
}

UNIT(a_name_that_is_taken_gets_a_suffix) {
  Arena *a = arena_new();
  Module *m = ir_module(a);
  CHECK_STR(new_name(m, "x"), "x");
  CHECK_STR(new_name(m, "x"), "x.1");
  CHECK_STR(new_name(m, "x.2"), "x.2");
  ValueId v = ir_value(m, "x", scalar, (Loc){0});
  CHECK_STR(m->values.at[v].name, "x.3");
  CHECK_STR(new_name(m, NULL), "v");
  ir_rename(m, v, "y");
  CHECK_EQ(ir_find_value(m, "y"), v);
  CHECK_EQ(ir_find_value(m, "x.3"), -1);
  CHECK_EQ(ir_find_value(m, "x"), 0);
  arena_free(a);
}

static void check_dead(const char *text, const char *rest) {
  Arena *a = arena_new();
  Diags *d = diags_new(a);
  static const char head[] =
      "stage annotated\nmesh m(a = 2)\n\nprogram stage 0 {\n  %x: f32[B=8] = state \"x\"\n  %s: f32[3] = state \"s\"\n";
  text = arena_printf(a, "%s%s}\n", head, text);
  Module *m = ir_parse(a, d, diags_add_file(d, "t.ir", text, strlen(text)));
  if (!m)
    unit_fail(__FILE__, __LINE__, "%s", d->list.at[0]->message);
  else {
    const char *why = "lawful";
    ir_dead_code(m);
    CHECK_STR(ir_print(m, a), arena_printf(a, "stage annotated\nmesh m(a = 2)\n\nprogram stage 0 {\n%s}\n", rest));
    CHECK(ir_verify(m, "dead", &why));
    CHECK_STR(why, "lawful");
  }
  arena_free(a);
}

UNIT(what_no_effect_needs_goes) {
  check_dead("  %w: f32 = param \"w\" ones\n  %y[b]: f32[B=8] = nest %x[b]\n  %z[b]: f32[B=8] = nest %y[b]\n",
             "  %w: f32 = param \"w\" ones\n");
  check_dead("  %y[b]: f32[B=8] = nest %x[b]\n  %z[b]: f32[B=8] = nest %y[b]\n  tap output \"y\" %y\n",
             "  %x: f32[B=8] = state \"x\"\n  %y[b]: f32[B=8] = nest %x[b]\n  tap output \"y\" %y\n");
}

UNIT(unused_entries_of_a_repeat_go) {
  check_dead(
      "  %y: f32[B=8], %o: f32[B=8], %all: f32[3, B=8], %kept: f32[3, B=8] = repeat %l < 3 carry(%c = %x, %e = %x) with(%i = %x) "
      "each(%t = %s) {\n"
      "    %n[b]: f32[B=8] = nest %c[b] * 2.0\n"
      "    %k[b]: f32[B=8] = nest %e[b] + %i[b] * %t\n"
      "    yield %n, %k stack(%k) save(%c)\n"
      "  }\n"
      "  tap output \"y\" %y\n",
      "  %x: f32[B=8] = state \"x\"\n"
      "  %y: f32[B=8] = repeat %l < 3 carry(%c = %x) {\n"
      "    %n[b]: f32[B=8] = nest %c[b] * 2.0\n"
      "    yield %n\n"
      "  }\n"
      "  tap output \"y\" %y\n");
}

/* %c only needs %e of the repetition before: two rounds until that is seen. */
UNIT(what_is_needed_around_a_repeat_stays) {
  check_dead("  %y: f32[B=8], %o: f32[B=8] = repeat %l < 3 carry(%c = %x, %e = %x) each(%t = %s) {\n"
             "    %k[b]: f32[B=8] = nest %e[b] * %t\n"
             "    yield %e, %k\n"
             "  }\n"
             "  tap output \"y\" %y\n",
             "  %x: f32[B=8] = state \"x\"\n"
             "  %s: f32[3] = state \"s\"\n"
             "  %y: f32[B=8], %o: f32[B=8] = repeat %l < 3 carry(%c = %x, %e = %x) each(%t = %s) {\n"
             "    %k[b]: f32[B=8] = nest %e[b] * %t\n"
             "    yield %e, %k\n"
             "  }\n"
             "  tap output \"y\" %y\n");
}

UNIT(half_of_a_combined_collective_goes) {
  check_dead("  %y: f32[B=8], %z: f32[3] = reshard %x, %s\n  tap output \"z\" %z\n",
             "  %s: f32[3] = state \"s\"\n  %z: f32[3] = reshard %s\n  tap output \"z\" %z\n");
}

static Split over(int64_t size, Window w) {
  Split s = {.n = 1, .window = w};
  s.part[0] = (AxisPart){0, 1, size};
  return s;
}

/* A window that holds what a plain split holds is that; one that holds all on every rank is no split. */
UNIT(windows_that_are_plain_splits_are_not_windows) {
  Split heads = split_canonical(over(4, (Window){6, 64, 0, 63, 1}), 384); /* x[64*h + k] */
  CHECK(!split_windowed(&heads));
  CHECK_EQ(heads.granule, 64);
  Split halves = split_canonical(over(4, (Window){16, 1, 0, 0, 2}), 8); /* x[i // 2] */
  CHECK(!split_windowed(&halves));
  CHECK_EQ(halves.granule, 0);
  Split all = split_canonical(over(4, (Window){4, 1, -3, 3, 1}), 4);
  CHECK(split_whole(&all));
  Split halo = split_canonical(over(4, (Window){8, 1, -1, 1, 1}), 8);
  CHECK(split_windowed(&halo));
  CHECK_EQ(split_capacity(&halo, 8), 4);
}

UNIT(a_halo_holds_the_chunk_and_not_the_reverse) {
  const Mesh m = {.naxes = 1, .axis = {{"x", 4}}};
  Split chunk = over(4, (Window){0}), halo = over(4, (Window){8, 1, -1, 1, 1}), reverse = over(4, (Window){8, -1, 7, 7, 1});
  CHECK(split_inside(&m, &chunk, &halo, 8));
  CHECK(!split_inside(&m, &halo, &chunk, 8));
  CHECK(!split_inside(&m, &reverse, &halo, 8));
  CHECK(split_inside(&m, &halo, &(Split){0}, 8));
  int64_t lo, hi;
  split_range(&m, &reverse, 8, 0, &lo, &hi);
  CHECK_EQ(lo, 6);
  CHECK_EQ(hi, 8);
}
