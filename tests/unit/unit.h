/* unit.h: a C unit test is a function in tests/unit; tests/tests.cc hands all of them to GoogleTest.

     UNIT(split_of_ten_over_four_is_three_three_three_one) { CHECK(split_capacity(&s, 10) == 3); }      */
#ifndef DTC_UNIT_H
#define DTC_UNIT_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif
void unit_register(const char *file, const char *name, void (*test)(void));
void unit_fail(const char *file, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#ifdef __cplusplus
}
#endif

#define UNIT(test)                                                                                                               \
  static void test(void);                                                                                                        \
  __attribute__((constructor)) static void register_##test(void) { unit_register(__FILE__, #test, test); }                       \
  static void test(void)

#define CHECK(cond)                                                                                                              \
  do {                                                                                                                           \
    if (!(cond)) unit_fail(__FILE__, __LINE__, "%s", #cond);                                                                     \
  } while (0)
#define CHECK_EQ(a, b)                                                                                                           \
  do {                                                                                                                           \
    long long va_ = (long long)(a), vb_ = (long long)(b);                                                                        \
    if (va_ != vb_) unit_fail(__FILE__, __LINE__, "%s is %lld, expected %s = %lld", #a, va_, #b, vb_);                           \
  } while (0)
#define CHECK_STR(a, b)                                                                                                          \
  do {                                                                                                                           \
    const char *va_ = (a), *vb_ = (b);                                                                                           \
    if (!va_ || !vb_ || strcmp(va_, vb_))                                                                                        \
      unit_fail(__FILE__, __LINE__, "%s is\n%s\nexpected\n%s", #a, va_ ? va_ : "(null)", vb_ ? vb_ : "(null)");                  \
  } while (0)

#endif
