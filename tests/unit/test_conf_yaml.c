/* The YAML reader: lines of nodes, sharing of anchors, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/strbuf.h"
#include "conf/yaml.h"

#include <stdlib.h>
#include <string.h>

static struct mr_error err;

static int parse(const char *text, struct mr_arena *a, struct mr_yaml_node **out)
{
    return mr_yaml_parse(text, strlen(text), "f.yaml", a, out, &err);
}

static void expect(const char *text, int code, const char *message, const char *context)
{
    struct mr_arena a = {0};
    struct mr_yaml_node *n;
    int rc = parse(text, &a, &n);
    if (rc != code || !strstr(err.message, message) || !strstr(err.context, context))
        fail_msg("'%.60s' gave %d '%s' '%s'", text, rc, rc ? err.message : "", rc ? err.context : "");
    mr_arena_done(&a);
}

static void nodes_know_their_lines_and_anchors_are_shared(void **state)
{
    (void)state;
    struct mr_arena a = {0};
    struct mr_yaml_node *n;
    assert_int_equal(parse("a: &x {p: 1, q: [2, 3]}\nb: *x\nc:\n  <<: *x\n  q: 'four'\n", &a, &n), 0);
    assert_int_equal(n->n, 3);
    assert_ptr_equal(mr_yaml_get(n, "a"), mr_yaml_get(n, "b"));
    struct mr_yaml_node *c = mr_yaml_get(n, "c");
    assert_int_equal(c->n, 2);
    assert_string_equal(mr_yaml_get(c, "q")->text, "four");
    assert_false(mr_yaml_get(c, "q")->plain);
    assert_int_equal(mr_yaml_get(c, "q")->line, 5);
    assert_string_equal(mr_yaml_get(c, "p")->text, "1");
    assert_string_equal(mr_yaml_flow(n->value[0], &a), "{p: 1, q: [2, 3]}");
    assert_int_equal(parse("", &a, &n), 0);
    assert_int_equal(n->kind, MR_YAML_MAP);
    assert_int_equal(n->n, 0);
    mr_arena_done(&a);
}

static void bad_documents_are_refused_with_their_line(void **state)
{
    (void)state;
    expect("a: 1\nb: 2\na: 3\n", MR_E_CONFIG, "duplicate key 'a'", "f.yaml:3");
    expect("a:\n\tb: 1\n", MR_E_CONFIG, "tab", "f.yaml:2");
    expect("a: \xff\xfe\n", MR_E_FORMAT, "UTF-8", "f.yaml:");
    expect("a: [1, 2\n", MR_E_CONFIG, "not valid YAML", "f.yaml:");
    expect("a: &x\n  b: *x\n", MR_E_FORMAT, "contains itself", "f.yaml:2");
    expect("a: *nope\n", MR_E_CONFIG, "unknown anchor 'nope'", "f.yaml:1");
    expect("--- {a: 1}\n--- {b: 2}\n", MR_E_CONFIG, "more than one document", "f.yaml:2");
    expect("? [1, 2]\n: x\n", MR_E_CONFIG, "a key must be a word", "f.yaml:1");
    expect("a: \"x\\0y\"\n", MR_E_CONFIG, "NUL", "f.yaml:1");
    expect("b: {<<: 3}\n", MR_E_CONFIG, "'<<' needs a map", "f.yaml:1");
}

static void bombs_are_refused(void **state)
{
    (void)state;
    struct mr_strbuf s = {0};
    mr_strbuf_puts(&s, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 12; i++) {
        mr_strbuf_printf(&s, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            mr_strbuf_printf(&s, "%s*a%d", k ? ", " : "", i - 1);
        mr_strbuf_puts(&s, "]\n");
    }
    expect(s.text, MR_E_LIMIT, "too many nodes", "f.yaml:");
    mr_strbuf_done(&s);
    mr_strbuf_puts(&s, "a: ");
    for (int i = 0; i < 70; i++)
        mr_strbuf_putc(&s, '[');
    expect(s.text, MR_E_LIMIT, "deeper than 64", "f.yaml:1");
    mr_strbuf_done(&s);
    for (int i = 0; i < 2000; i++)
        mr_strbuf_printf(&s, "k%d: 1\n", i);
    expect(s.text, MR_E_LIMIT, "1024 keys", "f.yaml:");
    mr_strbuf_done(&s);
    mr_strbuf_puts(&s, "a: &t '");
    for (int i = 0; i < 200000; i++)
        mr_strbuf_putc(&s, 'y');
    mr_strbuf_puts(&s, "'\nb: [");
    for (int i = 0; i < 100; i++)
        mr_strbuf_puts(&s, "*t, ");
    mr_strbuf_puts(&s, "1]\n");
    expect(s.text, MR_E_LIMIT, "too many nodes", "f.yaml:");
    mr_strbuf_done(&s);
    struct mr_arena a = {0};
    struct mr_yaml_node *n;
    char *big = calloc(1, MR_YAML_MAX_BYTES + 1);
    assert_non_null(big);
    memset(big, '#', MR_YAML_MAX_BYTES + 1);
    assert_int_equal(mr_yaml_parse(big, MR_YAML_MAX_BYTES + 1, "f.yaml", &a, &n, &err), MR_E_LIMIT);
    free(big);
    mr_arena_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_know_their_lines_and_anchors_are_shared),
        cmocka_unit_test(bad_documents_are_refused_with_their_line),
        cmocka_unit_test(bombs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
