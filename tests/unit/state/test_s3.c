/* The examples of Amazon's documentation of Signature Version 4 for S3, encodings, and the XML answers. */
#include "state/objects/s3_sign.h"
#include "state/objects/s3_xml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct s3_keys keys = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL};
static const char host[] = "examplebucket.s3.amazonaws.com", date[] = "20130524T000000Z";

/* "Authenticating Requests: Using the Authorization Header", Amazon S3 API reference. */
static void check_signature(const char *method, const char *path, const char *query, const char *body,
                            const struct s3_field *more, uint32_t more_count, const char *expected)
{
    struct byte_buffer out = {0};
    char payload[S3_SHA256_TEXT];
    s3_sha256(body, strlen(body), payload);
    struct s3_field fields[S3_FIELDS_MAX] = {{"x-amz-date", str_from(date)},
                                             {"x-amz-content-sha256", str_from(payload)},
                                             {"host", str_from(host)}};
    for (uint32_t i = 0; i < more_count; i++)
        fields[3 + i] = more[i];
    s3_sign(&(struct s3_signed){method, "us-east-1", str_from(path), str_from(query), date, payload, fields,
                                3 + more_count},
            &keys, &out);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data, expected);
    buffer_free(&out);
}

static void test_signatures(void **state)
{
    (void)state;
    const struct s3_field range = {"range", STR("bytes=0-9")};
    const struct s3_field put[] = {{"date", STR("Fri, 24 May 2013 00:00:00 GMT")},
                                   {"x-amz-storage-class", STR("REDUCED_REDUNDANCY")}};
#define BEGIN                                                                                                \
    "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders="
    check_signature("GET", "/test.txt", "", "", &range, 1,
                    BEGIN "host;range;x-amz-content-sha256;x-amz-date,"
                          "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    check_signature("PUT", "/test%24file.text", "", "Welcome to Amazon S3.", put, 2,
                    BEGIN "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
                          "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    check_signature("GET", "/", "lifecycle=", "", NULL, 0,
                    BEGIN "host;x-amz-content-sha256;x-amz-date,"
                          "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    check_signature("GET", "/", "max-keys=2&prefix=J", "", NULL, 0,
                    BEGIN "host;x-amz-content-sha256;x-amz-date,"
                          "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void test_encodings(void **state)
{
    (void)state;
    struct byte_buffer out = {0};
    char text[S3_DATE_TEXT];
    const struct s3_field parameters[] = {
        {"uploads", {NULL, 0}}, {"prefix", STR("a b/+\xc3\xa9")}, {"continuation-token", STR("x=/~")}};
    s3_query(&out, parameters, ARRAY_COUNT(parameters));
    s3_encode(&out, STR("/a b/%41~"), true);
    buffer_append(&out, "", 1);
    assert_string_equal(out.data,
                        "continuation-token=x%3D%2F~&prefix=a%20b%2F%2B%C3%A9&uploads=/a%20b/%2541~");
    buffer_free(&out);
    s3_date(INT64_C(1369353600) * US_PER_SECOND + 999999, text);
    assert_string_equal(text, date);
}

/* --- XML --- */

struct read {
    struct arena arena;
    struct s3_document document;
    const char *why;
};

static void check_refused(const char *xml, const char *why)
{
    struct read read = {0};
    assert_false(s3_xml_read(str_from(xml), &read.arena, &read.document, &read.why));
    assert_non_null(strstr(read.why, why));
    arena_free(&read.arena);
}

static void test_lists(void **state)
{
    (void)state;
    struct read read = {0};
    const char *xml =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
        "<Name>b</Name><IsTruncated>true</IsTruncated><NextContinuationToken>a+b=</NextContinuationToken>"
        "<Contents><Key>x &amp; &lt;y&gt; \xc3\xa9</Key><Size>18446744073709551615</Size><Owner><Key>no</Key></Owner>"
        "</Contents><Contents><Size>0</Size><Key>z</Key></Contents></ListBucketResult>";
    assert_true(s3_xml_read(str_from(xml), &read.arena, &read.document, &read.why));
    assert_int_equal(read.document.root, S3_ROOT_LIST);
    assert_int_equal(read.document.count, 2);
    assert_true(str_is(read.document.entries[0].key, "x & <y> \xc3\xa9"));
    assert_true(read.document.entries[0].bytes == UINT64_MAX);
    assert_true(str_is(read.document.entries[1].key, "z") && read.document.is_truncated);
    assert_true(str_is(read.document.next_token, "a+b="));
    arena_free(&read.arena);
    check_refused("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
                  "does not say where");
    check_refused("<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>", "no key");
    check_refused("<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
                  "no number");
    check_refused(
        "<ListBucketResult><Contents><Key>a</Key><Size>18446744073709551616</Size></Contents></ListBucketResult>",
        "no number");
}

static void test_uploads(void **state)
{
    (void)state;
    struct read read = {0};
    const char *xml =
        "<x:ListMultipartUploadsResult xmlns:x=\"y\"><x:Upload><x:Key>k</x:Key><x:UploadId>i</x:UploadId>"
        "<x:Initiated>2013-05-24T00:00:01.000Z</x:Initiated></x:Upload></x:ListMultipartUploadsResult>";
    assert_true(s3_xml_read(str_from(xml), &read.arena, &read.document, &read.why));
    assert_int_equal(read.document.root, S3_ROOT_UPLOADS);
    assert_int_equal(read.document.entries[0].begun_us, INT64_C(1369353601) * US_PER_SECOND);
    assert_true(str_is(read.document.entries[0].upload_id, "i"));
    arena_free(&read.arena);
    check_refused("<ListMultipartUploadsResult><Upload><Key>k</Key></Upload></ListMultipartUploadsResult>",
                  "no id");
    check_refused("<ListMultipartUploadsResult><Upload><Initiated>2013-05-24 00:00:01Z</Initiated></Upload>"
                  "</ListMultipartUploadsResult>",
                  "a time");
    check_refused("<InitiateMultipartUploadResult/>", "no id");
    check_refused("<Error><Message>m</Message></Error>", "no code");
}

/* What would take memory or time without end. */
static void test_hostile(void **state)
{
    (void)state;
    struct byte_buffer xml = {0};
    check_refused("", "no element");
    check_refused("<Error><Code>a</Code>", "no element");
    check_refused("<a><b><c><d><e><f><g><h><i/></h></g></f></e></d></c></b></a>", "too deeply");
    check_refused("<!DOCTYPE a [<!ENTITY b \"bbbb\"><!ENTITY c \"&b;&b;\">]><a>&c;</a>", "document type");
    buffer_printf(&xml, "<ListBucketResult>");
    for (uint32_t i = 0; i <= S3_XML_ENTRIES_MAX; i++)
        buffer_printf(&xml, "<Contents><Key>%u</Key></Contents>", i);
    buffer_printf(&xml, "</ListBucketResult>%c", '\0');
    check_refused(xml.data, "too many entries");
    buffer_clear(&xml);
    buffer_printf(&xml, "<ListBucketResult><Contents><Key>%*s</Key></Contents></ListBucketResult>%c",
                  S3_XML_TEXT_MAX + 1, "k", '\0');
    check_refused(xml.data, "too long");
    buffer_clear(&xml);
    buffer_printf(&xml, "<%0300d/>%c", 1, '\0');
    memset(xml.data + 1, 'a', 300);
    check_refused(xml.data, "too deeply");
    buffer_free(&xml);
    int64_t us;
    assert_false(s3_time_read(STR("2013-05-24T00:00:01"), &us));
    assert_false(s3_time_read(STR("2013"), &us));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures), cmocka_unit_test(test_encodings), cmocka_unit_test(test_lists),
        cmocka_unit_test(test_uploads),    cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
