/** Opens and closes the sheets. They are dialogs: the browser keeps the focus inside, and Escape closes them. */

/** Opens a sheet with a button. `onOpen` is called before it is shown. */
export function opens(button, sheet, onOpen) {
  button.addEventListener("click", () => {
    onOpen?.();
    sheet.showModal();
  });
  sheet.addEventListener("click", (event) => {
    // A click beside the sheet is a click on the dialog itself.
    if (event.target === sheet && !isInside(event, sheet)) {
      sheet.close();
    }
  });
}

function isInside({ clientX, clientY }, sheet) {
  const box = sheet.getBoundingClientRect();
  return clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
}
