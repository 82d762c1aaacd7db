"""The other browser tests are worth something only if an error would be noticed."""


def test_errors_and_requests_to_elsewhere_are_noticed(chromium, complaints):
    page = chromium.new_page()
    complaints.watch(page, "http://localhost:1")
    page.set_content("<script>console.error('written'); setTimeout(() => { throw Error('thrown') }); fetch('http://127.0.0.1:9/')</script>")
    page.wait_for_timeout(500)
    page.close()
    noticed = "\n".join(complaints.errors)
    complaints.errors.clear()
    assert "console: written" in noticed
    assert "uncaught: thrown" in noticed
    assert "request to http://127.0.0.1:9/" in noticed
